//! Flags of requests: each call supports some, and rejects the others.

use crate::error::{Error, Result};
pub use crate::proto::Flag;

/// The checked flags of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

/// The flags that each call supports.
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
    /// Checks the flags of a call that supports `known`.
    pub fn check(bits: u32, known: &[Flag]) -> Result<Flags> {
        let allowed = known.iter().fold(0, |bits, flag| bits | *flag as u32);
        let refused = bits & !allowed;
        if refused != 0 {
            let bit = 1u32 << refused.trailing_zeros();
            let name = i32::try_from(bit).ok().and_then(|bit| Flag::try_from(bit).ok());
            return Err(Error::invalid(match name {
                Some(flag) => format!("flag {} is not supported by this call", flag.as_str_name()),
                None => format!("unknown flag 0x{bit:x}"),
            }));
        }
        let flags = Flags(bits);
        if MODES.iter().filter(|mode| flags.has(**mode)).count() > 1 {
            let what = "INSERT_ONLY, CREATE_IF_ABSENT and OVERWRITE are mutually exclusive";
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
    fn errors_contain_the_name_or_number_of_a_flag() {
        let error = |bits, known| Flags::check(bits, known).unwrap_err().to_string();
        assert!(error(Flag::Slant as u32, PUT).contains("flag SLANT is not supported"));
        assert!(error(1 << 30, NEXT).contains("0x40000000"));
        assert!(error(1 << 31, NEXT).contains("0x80000000"));
        assert!(error(1 | 2, PUT).contains("mutually exclusive"));
        assert!(Flags::check(8 | 16 | 32, PUT).unwrap().has(Flag::NoWait));
    }
}
