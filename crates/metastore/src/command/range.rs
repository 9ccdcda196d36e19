//! Range queries, with all options of etcd's Range.

use crate::key::KeyRange;

/// The order of the keys in a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    None,
    Ascend,
    Descend,
}

/// The field by which a response is ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    #[default]
    Key,
    Version,
    Create,
    Mod,
    Value,
}

/// A query of a range. The default reads every key at the newest revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeQuery {
    pub range: KeyRange,
    /// 0 or less means the newest.
    pub revision: i64,
    /// 0 or less means no limit.
    pub limit: i64,
    pub order: Order,
    pub target: Target,
    pub keys_only: bool,
    pub count_only: bool,
    /// Inclusive bounds; 0 means none.
    pub mod_min: i64,
    pub mod_max: i64,
    pub create_min: i64,
    pub create_max: i64,
}

impl RangeQuery {
    pub fn new(range: KeyRange) -> RangeQuery {
        RangeQuery {
            range,
            revision: 0,
            limit: 0,
            order: Order::None,
            target: Target::Key,
            keys_only: false,
            count_only: false,
            mod_min: 0,
            mod_max: 0,
            create_min: 0,
            create_max: 0,
        }
    }

    pub fn at(self, revision: i64) -> RangeQuery {
        RangeQuery { revision, ..self }
    }

    pub(crate) fn filters(&self) -> bool {
        self.mod_min != 0 || self.mod_max != 0 || self.create_min != 0 || self.create_max != 0
    }

    /// Returns whether the response is in key order.
    pub(crate) fn in_key_order(&self) -> bool {
        self.target == Target::Key && self.order != Order::Descend
    }
}
