//! Flags of requests: each call knows some, and refuses the others.

use crate::error::{Error, Result};
pub use crate::proto::Flag;

/// The flags of a request that has been checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

/// What a call knows.
pub const CREATE: &[Flag] = &[Flag::AllOrNothing, Flag::NoWait, Flag::Reuse, Flag::NoCookies];
pub const DELETE: &[Flag] = &[Flag::AllOrNothing, Flag::MissingOk];
pub const LIST: &[Flag] = &[Flag::Slant, Flag::ExcludeStart, Flag::NoCookies];
pub const PUT: &[Flag] = &[
    Flag::InsertOnly,
    Flag::CreateIfAbsent,
    Flag::Overwrite,
    Flag::CreateCatalogue,
    Flag::AllOrNothing,
    Flag::NoWait,
    Flag::NoCookies,
];
pub const DEL: &[Flag] = &[Flag::AllOrNothing, Flag::NoWait];
pub const DEL_RANGE: &[Flag] = &[Flag::NoWait];
pub const GET: &[Flag] = &[Flag::NoCookies];
pub const NEXT: &[Flag] =
    &[Flag::Slant, Flag::ExcludeStart, Flag::KeysOnly, Flag::Pin, Flag::NoCookies];

/// How a Put treats a record that exists.
const MODES: [Flag; 3] = [Flag::InsertOnly, Flag::CreateIfAbsent, Flag::Overwrite];

impl Flags {
    /// The flags of a call that knows `known`.
    pub fn check(bits: u32, known: &[Flag]) -> Result<Flags> {
        let allowed = known.iter().fold(0, |bits, flag| bits | *flag as u32);
        let refused = bits & !allowed;
        if refused != 0 {
            let bit = 1u32 << refused.trailing_zeros();
            let name = i32::try_from(bit).ok().and_then(|bit| Flag::try_from(bit).ok());
            return Err(Error::invalid(match name {
                Some(flag) => format!("this call has no flag {}", flag.as_str_name()),
                None => format!("there is no flag 0x{bit:x}"),
            }));
        }
        let flags = Flags(bits);
        if MODES.iter().filter(|mode| flags.has(**mode)).count() > 1 {
            let what = "INSERT_ONLY, CREATE_IF_ABSENT and OVERWRITE exclude each other";
            return Err(Error::invalid(what));
        }
        Ok(flags)
    }

    pub fn has(self, flag: Flag) -> bool {
        self.0 & flag as u32 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_flag_is_told_by_name_or_number() {
        let told = |bits, known| Flags::check(bits, known).unwrap_err().to_string();
        assert!(told(Flag::Slant as u32, PUT).contains("no flag SLANT"));
        assert!(told(1 << 30, NEXT).contains("0x40000000"));
        assert!(told(1 << 31, NEXT).contains("0x80000000"));
        assert!(told(1 | 2, PUT).contains("exclude each other"));
        assert!(Flags::check(8 | 16 | 32, PUT).unwrap().has(Flag::NoWait));
    }
}
