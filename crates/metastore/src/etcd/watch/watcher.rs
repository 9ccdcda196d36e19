//! A watcher: its filter and its position.

use crate::command::{KeyRange, RangeEnd};
use crate::etcd::proto::WatchCreateRequest;
use crate::etcd::proto::watch_create_request::FilterType;
use crate::watch::{Event, EventKind};

pub struct Watcher {
    pub range: KeyRange,
    /// The first revision that it wants.
    pub start: i64,
    /// Everything below this revision has been sent.
    pub next: i64,
    /// Whether it lags behind the others of its stream.
    pub lagging: bool,
    pub prev_kv: bool,
    pub fragment: bool,
    pub progress_notify: bool,
    /// Whether it has been sent anything since the last progress notification.
    pub sent_since_progress: bool,
    no_put: bool,
    no_delete: bool,
}

impl Watcher {
    /// Creates a watcher from a request, or returns why it is invalid.
    pub fn new(request: WatchCreateRequest, revision: i64) -> Result<Watcher, String> {
        let filtered = |filter: FilterType| request.filters.contains(&filter.into());
        let (no_put, no_delete) = (filtered(FilterType::Noput), filtered(FilterType::Nodelete));
        let mut range = KeyRange::from_wire(request.key, request.range_end);
        if range.start.is_empty() {
            // An empty key stands for the first possible one.
            range.start = vec![0].into();
        }
        let empty = matches!(&range.end, RangeEnd::Before(end) if *end <= range.start);
        if empty {
            return Err("mvcc: watcher range is empty".into());
        }
        let start = match request.start_revision {
            0 => revision + 1,
            start if start < 0 => {
                let error = crate::Error::Compacted { compacted: 0 };
                return Err(error.to_string());
            }
            start => start,
        };
        Ok(Watcher {
            range,
            start,
            next: start,
            lagging: false,
            prev_kv: request.prev_kv,
            fragment: request.fragment,
            progress_notify: request.progress_notify,
            sent_since_progress: false,
            no_put,
            no_delete,
        })
    }

    /// Returns whether the watcher wants an event within its range.
    pub fn wants(&self, event: &Event) -> bool {
        event.revision >= self.next
            && match event.kind {
                EventKind::Put => !self.no_put,
                EventKind::Delete => !self.no_delete,
                EventKind::Lock => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{KeyView, Tail};

    fn request(key: &'static str, range_end: &'static str) -> WatchCreateRequest {
        let (key, range_end) = (key.into(), range_end.into());
        WatchCreateRequest { key, range_end, ..Default::default() }
    }

    #[test]
    fn a_watcher_without_a_key_watches_from_the_first_on() {
        let watcher = Watcher::new(request("", "\0"), 5).unwrap();
        assert!(watcher.range.contains(b"\0") && watcher.range.contains(b"\xFF"));
        assert_eq!(watcher.start, 6);
    }

    #[test]
    fn a_range_without_keys_is_refused() {
        for (key, end) in [("b", "a"), ("a", "a")] {
            assert!(Watcher::new(request(key, end), 1).is_err(), "{key}..{end}");
        }
        let negative = WatchCreateRequest { start_revision: -1, ..request("a", "") };
        assert!(Watcher::new(negative, 1).is_err_and(|reason| reason.contains("compacted")));
    }

    #[test]
    fn events_before_the_start_and_of_filtered_kinds_are_not_wanted() {
        let tail = Tail { mod_revision: 7, ..Tail::default() }.encode();
        let event =
            |revision, kind| Event::new(revision, kind, KeyView { key: b"a", tail: &tail }, None);
        let request =
            WatchCreateRequest { start_revision: 7, filters: vec![0], ..request("a", "") };
        let watcher = Watcher::new(request, 1).unwrap();
        assert!(watcher.wants(&event(7, EventKind::Delete)));
        assert!(!watcher.wants(&event(6, EventKind::Delete)));
        assert!(!watcher.wants(&event(7, EventKind::Put)));
    }
}
