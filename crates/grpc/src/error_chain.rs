//! The text of an error with its causes.

/// Formats an error with its chain of causes. Transports nest errors and often
/// repeat the text of the inner one; each text appears once here.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        for part in error.to_string().split(": ") {
            if !text.contains(part) {
                text = format!("{text}: {part}");
            }
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Failure(&'static str, Option<Box<Failure>>);

    impl std::fmt::Display for Failure {
        fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.write_str(self.0)
        }
    }

    impl std::error::Error for Failure {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn no_text_is_repeated() {
        let last = Failure("tcp connect error", Some(Box::new(Failure("refused", None))));
        let error = Failure("transport error: tcp connect error", Some(Box::new(last)));
        assert_eq!(chain(&error), "transport error: tcp connect error: refused");
        let last = Failure("tcp connect error: refused (os error 111)", None);
        let error = Failure(
            "transport error",
            Some(Box::new(Failure("tcp connect error", Some(Box::new(last))))),
        );
        assert_eq!(chain(&error), "transport error: tcp connect error: refused (os error 111)");
        let same = Failure("a", Some(Box::new(Failure("b", Some(Box::new(Failure("a", None)))))));
        assert_eq!(chain(&same), "a: b");
    }
}
