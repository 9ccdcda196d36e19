//! Which errors are worth a retry, and how errors are shown.

use std::io;

use object_store::Error;

/// The maximum length of a shown error.
const SHOWN_MAX: usize = 600;

/// Reports whether the store has answered the question: the request itself did not fail.
pub fn is_answer(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound { .. } | Error::AlreadyExists { .. } | Error::Precondition { .. }
    )
}

/// Reports whether another attempt may succeed.
pub fn is_transient(error: &Error) -> bool {
    !matches!(
        error,
        Error::NotFound { .. }
            | Error::AlreadyExists { .. }
            | Error::Precondition { .. }
            | Error::NotModified { .. }
            | Error::InvalidPath { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::UnknownConfigurationKey { .. }
    )
}

pub fn kind(error: &Error) -> io::ErrorKind {
    match error {
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        Error::AlreadyExists { .. } => io::ErrorKind::AlreadyExists,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            io::ErrorKind::PermissionDenied
        }
        Error::NotSupported { .. } | Error::NotImplemented { .. } => io::ErrorKind::Unsupported,
        error => match error.to_string() {
            text if text.contains("507 Insufficient Storage") => io::ErrorKind::StorageFull,
            text if text.contains("No space left on device") => io::ErrorKind::StorageFull,
            _ => io::ErrorKind::Other,
        },
    }
}

pub fn generic(why: &str) -> Error {
    Error::Generic { store: "object store", source: why.into() }
}

/// Returns the text of an error. Of a document that the store returned only the code and
/// the message are kept: it may repeat keys and signatures of the request.
pub fn shown(error: &Error) -> String {
    shorten(&error.to_string())
}

fn shorten(text: &str) -> String {
    let document = text.find("<?xml").or_else(|| text.find("<Error"));
    let mut shown = match document {
        None => text.to_string(),
        Some(at) => {
            let element = |name: &str| {
                let rest = text[at..].split_once(&format!("<{name}>"))?.1;
                Some(rest.split_once("</")?.0.to_string())
            };
            let told: Vec<_> = ["Code", "Message"].into_iter().filter_map(element).collect();
            format!("{}{}", &text[..at], told.join(": "))
        }
    };
    shown = shown.replace(['\n', '\r'], " ");
    if let Some((at, _)) = shown.char_indices().nth(SHOWN_MAX) {
        shown.truncate(at);
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_the_store_are_reduced_to_code_and_message() {
        let text = "403: <?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code>\
                    <Message>The signature\ndiffers</Message><AWSAccessKeyId>AKIA</AWSAccessKeyId></Error>";
        assert_eq!(shorten(text), "403: SignatureDoesNotMatch: The signature differs");
        assert_eq!(shorten("plain"), "plain");
        assert_eq!(shorten("a <Error>"), "a ");
        assert!(shorten(&"é".repeat(5000)).len() < 1300);
    }

    #[test]
    fn answers_and_refusals_are_not_retried() {
        let path = || "p".to_string();
        let source = || "s".into();
        for error in [
            Error::NotFound { path: path(), source: source() },
            Error::AlreadyExists { path: path(), source: source() },
            Error::PermissionDenied { path: path(), source: source() },
        ] {
            assert!(!is_transient(&error), "{error}");
        }
        assert!(is_transient(&generic("503")));
    }
}
