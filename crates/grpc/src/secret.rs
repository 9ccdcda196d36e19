//! Values that must not be printed: tokens, passwords, private keys.

use std::fmt;

/// A value that is omitted from debug output and thus from logs. It cannot be
/// displayed either: code that needs the value calls [`Secret::expose`]
/// explicitly.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Secret<T = String>(T);

impl<T> Secret<T> {
    pub fn new(value: impl Into<T>) -> Secret<T> {
        Secret(value.into())
    }

    /// Returns the value, for the one place that sends or checks it.
    pub fn expose(&self) -> &T {
        &self.0
    }

    /// Returns the value, for code that keeps it secret by other means.
    pub fn into_exposed(self) -> T {
        self.0
    }
}

/// Allows looking up a secret in a map without copying the received text.
impl std::borrow::Borrow<str> for Secret<String> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("[secret]")
    }
}

impl From<&str> for Secret<String> {
    fn from(value: &str) -> Secret<String> {
        Secret(value.into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_secret_is_not_shown_and_can_be_found() {
        let token: Secret = Secret::new("s3cret");
        assert_eq!(format!("{token:?} {:#?}", Some(token.clone())).matches("s3cret").count(), 0);
        assert_eq!(token.expose(), "s3cret");
        let table = HashMap::from([(token, 7)]);
        assert_eq!(table.get("s3cret"), Some(&7));
        let key = Secret::<Vec<u8>>::new(b"key".to_vec());
        assert_eq!(format!("{key:?}"), "[secret]");
        assert_eq!(key.into_exposed(), b"key");
    }
}
