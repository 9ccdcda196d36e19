//! Tokens that members remember, each for as long as it is used.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::fatal::Mutex;

/// A token is forgotten when it was not used for this long.
const TOKEN_TTL: Duration = Duration::from_secs(300);
/// The maximum number of tokens. Beyond it, the least recently used is
/// forgotten.
const TOKENS_MAX: usize = 100_000;

/// The tokens of all users.
#[derive(Default)]
pub struct Tokens(Mutex<HashMap<Arc<str>, Token>>);

struct Token {
    user: Arc<str>,
    until: Duration,
}

impl Tokens {
    pub fn add(&self, token: &str, user: &str, now: Duration) {
        let mut tokens = self.0.lock();
        if tokens.len() >= TOKENS_MAX {
            tokens.retain(|_, token| token.until > now);
        }
        if tokens.len() >= TOKENS_MAX
            && let Some(oldest) =
                tokens.iter().min_by_key(|(_, token)| token.until).map(|(token, _)| token.clone())
        {
            tokens.remove(&oldest);
        }
        tokens.insert(token.into(), Token { user: user.into(), until: now + TOKEN_TTL });
    }

    /// Returns the user of a token, whose time begins again.
    pub fn user(&self, token: &str, now: Duration) -> Option<Arc<str>> {
        let mut tokens = self.0.lock();
        let found = tokens.get_mut(token)?;
        if found.until <= now {
            tokens.remove(token);
            return None;
        }
        found.until = now + TOKEN_TTL;
        Some(found.user.clone())
    }

    /// Forgets the tokens of the users that `lost` selects.
    pub fn forget(&self, lost: impl Fn(&str) -> bool) {
        self.0.lock().retain(|_, token| !lost(&token.user));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lives_while_it_is_used() {
        let tokens = Tokens::default();
        let at = Duration::from_secs;
        tokens.add("t", "ada", at(0));
        tokens.add("u", "bob", at(0));
        assert_eq!(tokens.user("t", at(299)).as_deref(), Some("ada"));
        assert_eq!(tokens.user("t", at(598)).as_deref(), Some("ada"));
        assert_eq!(tokens.user("u", at(598)), None);
        assert_eq!(tokens.user("t", at(898)), None);
        assert_eq!(tokens.user("t", at(0)), None, "forgotten");
    }

    #[test]
    fn a_users_tokens_are_forgotten_together_and_their_number_is_bounded() {
        let tokens = Tokens::default();
        for (at, user) in ["ada", "bob", "ada"].into_iter().enumerate() {
            tokens.add(&format!("t{at}"), user, Duration::ZERO);
        }
        tokens.forget(|user| user == "ada");
        assert_eq!(tokens.user("t0", Duration::ZERO), None);
        assert_eq!(tokens.user("t1", Duration::ZERO).as_deref(), Some("bob"));
        for at in 0..TOKENS_MAX + 5 {
            tokens.add(&format!("more{at}"), "ada", Duration::from_secs(1));
        }
        assert_eq!(tokens.0.lock().len(), TOKENS_MAX);
        assert_eq!(tokens.user("t1", Duration::from_secs(1)), None, "the oldest");
    }
}
