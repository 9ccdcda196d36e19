//! Finds the names of resources in the bytes of requests as they arrive, before a service
//! decodes them. Nothing but the names is copied.
//!
//! Messages whose meaning depends on the decoder are refused: a name that occurs twice,
//! groups, compressed messages.

use crate::methods::{Place, Requirement};

/// The bytes before each message: a flag and the length.
const PREFIX_BYTES: usize = 5;
/// The most bytes of a name.
const NAME_BYTES_MAX: usize = 4096;
/// The most names in one message.
const NAMES_MAX: usize = 100_000;
const FID_BYTES: usize = 16;
/// How deep names are nested at most.
const DEPTH_MAX: usize = 4;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// Why a message is refused.
pub type Malformed = &'static str;

/// The resources that one message names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The number of a requirement, and a resource.
    pub names: Vec<(usize, String)>,
    /// The number of a requirement whose flag is set.
    pub flagged: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Prefix,
    Tag,
    Number { field: u32 },
    Length { field: u32 },
    Skip { left: usize },
    Collect { left: usize },
}

/// Reads the messages of one request.
pub struct Scanner {
    requirements: &'static [Requirement],
    state: State,
    prefix: [u8; PREFIX_BYTES],
    prefix_len: usize,
    /// Position in the message, and its length.
    at: usize,
    message_len: usize,
    /// The fields that lead to the open inner messages, and where those end.
    path: Vec<u32>,
    ends: Vec<usize>,
    varint: u64,
    shift: u32,
    name: Vec<u8>,
    /// The requirements whose name is being collected.
    collected: Vec<usize>,
    found: Found,
}

impl Scanner {
    pub fn new(requirements: &'static [Requirement]) -> Scanner {
        Scanner {
            requirements,
            state: State::Prefix,
            prefix: [0; PREFIX_BYTES],
            prefix_len: 0,
            at: 0,
            message_len: 0,
            path: Vec::new(),
            ends: Vec::new(),
            varint: 0,
            shift: 0,
            name: Vec::new(),
            collected: Vec::new(),
            found: Found::default(),
        }
    }

    /// Takes the next bytes of the request. Calls `complete` with the resources of each
    /// message whose last byte is among them.
    pub fn advance<E: From<Malformed>>(
        &mut self,
        mut data: &[u8],
        mut complete: impl FnMut(Found) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            if !matches!(self.state, State::Prefix) {
                self.leave();
                if self.at == self.message_len {
                    if !matches!(self.state, State::Tag) || self.shift > 0 {
                        return Err("a message that ends within a field".into());
                    }
                    complete(std::mem::take(&mut self.found))?;
                    self.state = State::Prefix;
                    self.prefix_len = 0;
                    continue;
                }
            }
            if data.is_empty() {
                return Ok(());
            }
            let used = self.step(data)?;
            data = &data[used..];
        }
    }

    /// Closes the inner messages that end here.
    fn leave(&mut self) {
        while matches!(self.state, State::Tag) && self.ends.last() == Some(&self.at) {
            if self.shift > 0 {
                return;
            }
            self.ends.pop();
            self.path.pop();
        }
    }

    /// Consumes some bytes; `data` is not empty.
    fn step(&mut self, data: &[u8]) -> Result<usize, Malformed> {
        match self.state {
            State::Prefix => {
                let used = data.len().min(PREFIX_BYTES - self.prefix_len);
                self.prefix[self.prefix_len..][..used].copy_from_slice(&data[..used]);
                self.prefix_len += used;
                if self.prefix_len == PREFIX_BYTES {
                    self.begin()?;
                }
                Ok(used)
            }
            State::Tag => {
                if let Some(tag) = self.varint(data[0])? {
                    self.field(tag)?;
                }
                Ok(1)
            }
            State::Number { field } => {
                if let Some(number) = self.varint(data[0])? {
                    self.number(field, number);
                    self.state = State::Tag;
                }
                Ok(1)
            }
            State::Length { field } => {
                if let Some(length) = self.varint(data[0])? {
                    self.enter(field, length)?;
                }
                Ok(1)
            }
            State::Skip { left } => {
                let used = left.min(data.len());
                self.at += used;
                self.state =
                    if used == left { State::Tag } else { State::Skip { left: left - used } };
                Ok(used)
            }
            State::Collect { left } => {
                let used = left.min(data.len());
                self.name.extend_from_slice(&data[..used]);
                self.at += used;
                self.state = State::Collect { left: left - used };
                if used == left {
                    self.state = State::Tag;
                    self.collect()?;
                }
                Ok(used)
            }
        }
    }

    fn begin(&mut self) -> Result<(), Malformed> {
        if self.prefix[0] != 0 {
            return Err("a compressed message");
        }
        let [_, length @ ..] = self.prefix;
        self.message_len = u32::from_be_bytes(length) as usize;
        (self.at, self.state) = (0, State::Tag);
        self.path.clear();
        self.ends.clear();
        Ok(())
    }

    /// Adds a byte to a number. Returns it when it is complete.
    fn varint(&mut self, byte: u8) -> Result<Option<u64>, Malformed> {
        if self.at >= self.end() {
            return Err("a field that is longer than its message");
        }
        self.at += 1;
        let bits = u64::from(byte & 0x7F);
        if self.shift > 63 || (self.shift == 63 && bits > 1) {
            return Err("a number of more than 64 bits");
        }
        self.varint |= bits << self.shift;
        if byte & 0x80 != 0 {
            self.shift += 7;
            return Ok(None);
        }
        self.shift = 0;
        Ok(Some(std::mem::take(&mut self.varint)))
    }

    /// Returns where the innermost open message ends.
    fn end(&self) -> usize {
        self.ends.last().copied().unwrap_or(self.message_len)
    }

    fn field(&mut self, tag: u64) -> Result<(), Malformed> {
        let field = u32::try_from(tag >> 3).ok().filter(|field| *field > 0 && tag >> 32 == 0);
        let field = field.ok_or("an invalid field number")?;
        self.state = match tag & 7 {
            VARINT => State::Number { field },
            LENGTH => State::Length { field },
            FIXED64 => self.skip(8)?,
            FIXED32 => self.skip(4)?,
            _ => return Err("a group, which no version of the API has"),
        };
        if tag & 7 != LENGTH && self.places().any(|(_, place)| self.leads(place, field).is_some()) {
            return Err("a name of a wrong type");
        }
        Ok(())
    }

    fn skip(&self, left: usize) -> Result<State, Malformed> {
        match left <= self.end() - self.at {
            true if left == 0 => Ok(State::Tag),
            true => Ok(State::Skip { left }),
            false => Err("a field that is longer than its message"),
        }
    }

    /// Returns the fields that lead to names.
    fn places(&self) -> impl Iterator<Item = (usize, &'static [u32])> {
        self.requirements.iter().enumerate().filter_map(|(number, requirement)| {
            match requirement.place {
                Place::Fixed(_) => None,
                Place::Name(field) | Place::Operation(field) | Place::Fid(field) => {
                    Some((number, field))
                }
            }
        })
    }

    /// Returns whether a field in the open message is the name itself (true) or a message
    /// that contains it (false).
    fn leads(&self, place: &[u32], field: u32) -> Option<bool> {
        let rest = place.strip_prefix(&self.path[..])?;
        (rest.first() == Some(&field)).then_some(rest.len() == 1)
    }

    /// Handles a field with a length, which has just been read.
    fn enter(&mut self, field: u32, length: u64) -> Result<(), Malformed> {
        let length = usize::try_from(length).map_err(|_| "a field that is too long")?;
        self.state = self.skip(length)?;
        let mut names = Vec::new();
        let mut inner = false;
        for (number, place) in self.places() {
            match self.leads(place, field) {
                Some(true) => names.push(number),
                Some(false) => inner = true,
                None => {}
            }
        }
        if !names.is_empty() {
            if length > NAME_BYTES_MAX {
                return Err("a name of more than 4096 bytes");
            }
            self.name.clear();
            self.collected = names;
            match length {
                0 => self.collect()?,
                left => self.state = State::Collect { left },
            }
        } else if inner {
            if self.path.len() == DEPTH_MAX {
                return Err("messages that are nested too deep");
            }
            self.path.push(field);
            self.ends.push(self.at + length);
            self.state = State::Tag;
        }
        Ok(())
    }

    /// Ends a name.
    fn collect(&mut self) -> Result<(), Malformed> {
        for number in std::mem::take(&mut self.collected) {
            let place = self.requirements[number].place;
            let name = match place {
                Place::Fid(_) => fid(&self.name)?,
                Place::Operation(_) => operation(text(&self.name)?).to_owned(),
                Place::Name(_) | Place::Fixed(_) => text(&self.name)?.to_owned(),
            };
            let repeated = self.found.names.iter().any(|(found, _)| *found == number);
            if repeated && !matches!(place, Place::Fid(_)) {
                return Err("a message that names its resource twice");
            }
            if self.found.names.len() == NAMES_MAX {
                return Err("a message with too many names");
            }
            // An empty name is the same as none.
            if !name.is_empty() {
                self.found.names.push((number, name));
            }
        }
        Ok(())
    }

    fn number(&mut self, field: u32, value: u64) {
        if !self.path.is_empty() {
            return;
        }
        for (number, requirement) in self.requirements.iter().enumerate() {
            if requirement.flag.is_some_and(|(flags, bits)| flags == field && value & bits != 0) {
                self.found.flagged.push(number);
            }
        }
    }
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| "a name that is not UTF-8")
}

/// Returns what an operation works on: its name is `operations/RESOURCE/operations/ID`.
fn operation(name: &str) -> &str {
    let name = name.strip_prefix("operations/").unwrap_or(name);
    name.rsplit_once("/operations/").map_or(name, |(resource, _)| resource)
}

/// Returns the resource of a catalogue.
fn fid(bytes: &[u8]) -> Result<String, Malformed> {
    if bytes.len() != FID_BYTES {
        return Err("a catalogue id that has not 16 bytes");
    }
    let (high, low) = bytes.split_at(8);
    let number = |part: &[u8]| part.iter().fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
    Ok(format!("catalogues/{:x}:{:x}", number(high), number(low)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::methods::{Access, access};

    fn requirements(path: &str) -> &'static [Requirement] {
        match access(path) {
            Some(Access::Needs(all)) => all,
            other => panic!("{path}: {other:?}"),
        }
    }

    const READ: &str = "/google.bigtable.v2.Bigtable/ReadRows";
    const UPDATE: &str = "/google.bigtable.admin.v2.BigtableTableAdmin/UpdateTable";
    const CREATE: &str = "/stele.catalogue.v1.Catalogues/Create";
    const PUT: &str = "/stele.catalogue.v1.Catalogues/Put";

    fn varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    fn bytes_field(field: u32, bytes: &[u8]) -> Vec<u8> {
        [varint(u64::from(field << 3 | 2)), varint(bytes.len() as u64), bytes.to_vec()].concat()
    }

    fn number_field(field: u32, value: u64) -> Vec<u8> {
        [varint(u64::from(field << 3)), varint(value)].concat()
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
    }

    fn scan(path: &str, stream: &[u8], cut: usize) -> Result<Vec<Found>, &'static str> {
        let mut scanner = Scanner::new(requirements(path));
        let mut found = Vec::new();
        for piece in stream.chunks(cut.max(1)) {
            scanner.advance(piece, |one| {
                found.push(one);
                Ok::<(), &'static str>(())
            })?;
        }
        Ok(found)
    }

    fn names(path: &str, message: &[u8]) -> Result<Vec<(usize, String)>, &'static str> {
        let mut found = scan(path, &framed(message), usize::MAX)?;
        assert_eq!(found.len(), 1);
        Ok(found.remove(0).names)
    }

    #[test]
    fn a_name_is_found_however_the_bytes_are_cut() {
        let rows = bytes_field(2, &[bytes_field(1, b"projects/other"), vec![0x50, 1]].concat());
        let message = [rows, bytes_field(9, b"v"), number_field(4, 300), bytes_field(1, b"t")];
        let expected = vec![(1, "v".to_string()), (0, "t".to_string())];
        let stream = framed(&message.concat()).repeat(3);
        for cut in 1..stream.len() {
            let found = scan(READ, &stream, cut).unwrap();
            assert_eq!(found.len(), 3, "{cut}");
            assert!(found.iter().all(|one| one.names == expected), "{cut}");
        }
        assert_eq!(names(READ, b"").unwrap(), []);
        assert_eq!(names(READ, &bytes_field(1, b"")).unwrap(), []);
    }

    #[test]
    fn a_name_within_a_message_is_found() {
        let table = [bytes_field(3, &bytes_field(1, b"family")), bytes_field(1, b"t")].concat();
        let message = [bytes_field(1, &table), bytes_field(2, b"mask")].concat();
        assert_eq!(names(UPDATE, &message).unwrap(), [(0, "t".to_string())]);
        let twice = [bytes_field(1, &table), bytes_field(1, &table)].concat();
        assert!(names(UPDATE, &twice).is_err());
        let later = [bytes_field(1, b""), bytes_field(1, &table)].concat();
        assert_eq!(names(UPDATE, &later).unwrap().len(), 1);
    }

    #[test]
    fn every_repeated_catalogue_id_is_found_and_flags_are_seen() {
        let fid = |low: u8| [&[0; 7][..], &[0x10], &[0; 7], &[low]].concat();
        let message = [bytes_field(1, &fid(1)), bytes_field(1, &fid(0xab))].concat();
        let expected = ["catalogues/10:1", "catalogues/10:ab"].map(|name| (0, name.to_string()));
        assert_eq!(names(CREATE, &message).unwrap(), expected);
        assert!(names(CREATE, &bytes_field(1, b"short")).is_err());
        let put = |flags| {
            let target = bytes_field(1, &bytes_field(1, &fid(1)));
            scan(PUT, &framed(&[target, number_field(3, flags)].concat()), 7).unwrap().remove(0)
        };
        assert!(put(4).flagged.is_empty());
        assert_eq!(put(8 | 1).flagged, [1]);
        assert_eq!(put(8).names.len(), 2);
    }

    #[test]
    fn the_resource_of_an_operation_is_what_it_works_on() {
        assert_eq!(operation("operations/projects/p/x/operations/7"), "projects/p/x");
        assert_eq!(operation("operations/projects/p"), "projects/p");
        assert_eq!(operation(""), "");
    }

    #[test]
    fn messages_whose_meaning_depends_on_the_decoder_are_refused() {
        let twice = [bytes_field(1, b"a"), bytes_field(1, b"b")].concat();
        let huge = bytes_field(1, &[b'a'; 5000]);
        for wrong in [
            &twice[..],
            &huge,
            &number_field(1, 7),
            &[0x0B],
            &[0x0C],
            &[0x02, 0],
            &[0x0A, 5, b'a'],
            &[0x0A],
            &[0x80; 11],
            &[0x0A, 1, 0xFF],
            &[0x0D, 0, 0, 0, 0],
        ] {
            assert!(names(READ, wrong).is_err(), "{wrong:x?}");
        }
        // The same field number in a longer encoding.
        assert_eq!(names(READ, &[0x8A, 0, 1, b't']).unwrap(), [(0, "t".to_string())]);
        let compressed = [&[1][..], &framed(b"")[1..]].concat();
        assert!(scan(READ, &compressed, 9).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_never_pass_half_read(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            cut in 1_usize..9,
        ) {
            for path in [READ, UPDATE, CREATE, PUT] {
                let whole = scan(path, &framed(&bytes), usize::MAX);
                prop_assert_eq!(&whole, &scan(path, &framed(&bytes), cut));
                let _ = scan(path, &bytes, cut);
            }
        }
    }
}
