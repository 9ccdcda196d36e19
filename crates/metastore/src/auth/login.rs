//! Identifies callers: by a password, which is exchanged for a token, and then by
//! the token.
//!
//! Verifying a password is slow on purpose. It runs on a few threads at a time,
//! takes as long for unknown users as for known ones, and is skipped for a
//! password that was verified recently.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use stele_engine::fatal::Mutex;
use stele_engine::world::Clock;
use tokio::sync::Semaphore;

use super::jwt::Jwt;
use super::{AuthError, AuthState, SharedAuth, password};
use crate::command::Caller;
use crate::error::{Error, Result};

/// The rounds of new hashes.
pub const ROUNDS: NonZeroU32 = NonZeroU32::new(210_000).expect("not zero");
/// The maximum number of calls that wait to verify a password.
const WAITING_MAX: usize = 32;
/// How long a verified password is remembered, and how many.
const REMEMBERED: Duration = Duration::from_secs(300);
const REMEMBERED_MAX: usize = 10_000;
/// The letters of a token.
const LETTERS: &[u8; 52] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const TOKEN_LETTERS: usize = 16;

/// The kind of tokens that a member issues.
#[derive(Clone, Default)]
pub enum TokenKind {
    /// Random letters, which all members remember.
    #[default]
    Simple,
    /// Signed tokens.
    Jwt(Arc<Jwt>),
}

impl TokenKind {
    /// Parses etcd's form: `simple`, or `jwt,` and its options.
    pub fn parse(text: &str) -> Result<TokenKind> {
        match text.split_once(',').unwrap_or((text, "")) {
            ("simple", "") => Ok(TokenKind::Simple),
            ("jwt", options) => Ok(TokenKind::Jwt(Arc::new(Jwt::new(options)?))),
            _ => Err(Error::Config(format!(
                "invalid kind of tokens {text:?}: use simple, or jwt,sign-method=METHOD,..."
            ))),
        }
    }
}

impl std::fmt::Debug for TokenKind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            TokenKind::Simple => "simple",
            TokenKind::Jwt(_) => "jwt",
        })
    }
}

/// Identifies the callers of a member.
pub struct Login {
    tokens: TokenKind,
    rounds: NonZeroU32,
    verifying: Semaphore,
    waiting: Semaphore,
    /// Under which key verified passwords are remembered. Random, so that the
    /// memory of the process does not reveal them.
    key: hmac::Key,
    /// Digests of users, their stored hashes and passwords, and until when they
    /// are valid.
    verified: Mutex<HashMap<Vec<u8>, Duration>>,
    clock: Arc<dyn Clock>,
}

impl Login {
    pub fn new(tokens: TokenKind, rounds: NonZeroU32, clock: Arc<dyn Clock>) -> Login {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).expect("the system has random numbers");
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Login {
            tokens,
            rounds,
            verifying: Semaphore::new((cores / 2).max(1)),
            waiting: Semaphore::new(WAITING_MAX),
            key: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            verified: Mutex::default(),
            clock,
        }
    }

    /// Returns the caller of a token.
    pub fn caller(&self, auth: &SharedAuth, token: &str) -> Result<Caller> {
        match &self.tokens {
            TokenKind::Jwt(jwt) => jwt.verify(token, self.clock.now_micros()),
            TokenKind::Simple => {
                let user = auth.tokens.user(token, self.clock.elapsed());
                let user = user.ok_or(AuthError::InvalidToken)?;
                Ok(Caller { user, auth_revision: auth.get().revision() })
            }
        }
    }

    /// Hashes a password, away from the threads that serve calls.
    pub async fn hash(&self, password: String) -> Result<String> {
        let rounds = self.rounds;
        self.slowly(move || password::hash(&password, rounds)).await?
    }

    /// Verifies the password of a user. Returns the user as a caller.
    pub async fn verify(&self, auth: &AuthState, name: &str, password: &str) -> Result<Caller> {
        if !auth.is_enabled() {
            return Err(AuthError::NotEnabled.into());
        }
        let user = auth.user(name);
        if user.is_some_and(|user| !AuthState::has_password(user)) {
            return Err(AuthError::NoPasswordUser.into());
        }
        let stored = user.map(|user| String::from_utf8_lossy(&user.password).into_owned());
        let digest = self.digest(name, stored.as_deref().unwrap_or_default(), password);
        if user.is_none() || !self.is_remembered(&digest) {
            let (password, rounds) = (password.to_owned(), self.rounds);
            let verified = self.slowly(move || match stored {
                Some(stored) => password::verify(&password, &stored),
                // Takes as long as a verification, so that the time does not
                // show which users exist.
                None => password::hash(&password, rounds).is_err(),
            });
            if !verified.await? {
                return Err(AuthError::Failed.into());
            }
            self.remember(digest);
        }
        Ok(Caller { user: name.into(), auth_revision: auth.revision() })
    }

    /// Returns a new token for a caller.
    pub fn new_token(&self, caller: &Caller) -> Result<NewToken> {
        match &self.tokens {
            TokenKind::Jwt(jwt) => Ok(NewToken::Signed(jwt.sign(caller, self.clock.now_micros())?)),
            TokenKind::Simple => Ok(NewToken::Remembered(random_letters()?)),
        }
    }

    /// Runs slow work, if not too many others wait for the same.
    async fn slowly<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let _waiting = self.waiting.try_acquire().map_err(|_| Error::TooManyRequests)?;
        let _turn = self.verifying.acquire().await.map_err(|_| Error::Stopped)?;
        let done = stele_grpc::offload::offload(work).await;
        done.map_err(|_| Error::TooManyRequests)
    }

    fn digest(&self, name: &str, stored: &str, password: &str) -> Vec<u8> {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [name, stored, password] {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part.as_bytes());
        }
        context.sign().as_ref().to_vec()
    }

    fn is_remembered(&self, digest: &[u8]) -> bool {
        self.verified.lock().get(digest).is_some_and(|until| *until > self.clock.elapsed())
    }

    fn remember(&self, digest: Vec<u8>) {
        let now = self.clock.elapsed();
        let mut verified = self.verified.lock();
        if verified.len() >= REMEMBERED_MAX {
            verified.retain(|_, until| *until > now);
        }
        if verified.len() < REMEMBERED_MAX {
            verified.insert(digest, now + REMEMBERED);
        }
    }
}

/// A token that was issued.
#[derive(Debug)]
pub enum NewToken {
    /// Needs no memory.
    Signed(String),
    /// To be proposed, so that all members remember it.
    Remembered(String),
}

/// Returns random letters, each with the same probability.
fn random_letters() -> Result<String> {
    let random = SystemRandom::new();
    let mut letters = String::with_capacity(TOKEN_LETTERS);
    while letters.len() < TOKEN_LETTERS {
        let mut byte = [0];
        let filled = random.fill(&mut byte);
        filled.map_err(|_| Error::Internal("the system has no random numbers".into()))?;
        // 208 is the largest multiple of 52 in a byte.
        if byte[0] < 208 {
            letters.push(char::from(LETTERS[usize::from(byte[0]) % LETTERS.len()]));
        }
    }
    Ok(letters)
}

#[cfg(test)]
mod tests {
    use stele_engine::world::ManualClock;

    use super::*;
    use crate::auth::ROOT;
    use crate::command::AuthCommand;
    use crate::proto::etcd::{AuthUserAddRequest, AuthUserGrantRoleRequest, UserAddOptions};

    const FEW: NonZeroU32 = NonZeroU32::new(3).unwrap();

    fn example() -> AuthState {
        let mut auth = AuthState::default();
        for (name, no_password) in [(ROOT, false), ("certificate", true)] {
            auth.apply(&AuthCommand::UserAdd(AuthUserAddRequest {
                name: name.into(),
                options: Some(UserAddOptions { no_password }),
                hashed_password: password::hash("secret", FEW).unwrap(),
                ..Default::default()
            }))
            .unwrap();
        }
        let (user, role) = (ROOT.into(), ROOT.into());
        auth.apply(&AuthCommand::UserGrantRole(AuthUserGrantRoleRequest { user, role })).unwrap();
        auth
    }

    fn login() -> (Login, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(0));
        (Login::new(TokenKind::Simple, FEW, clock.clone()), clock)
    }

    #[tokio::test]
    async fn a_password_identifies_its_user_and_nobody_else() {
        let (login, clock) = login();
        let mut auth = example();
        let refusal = async |auth: &AuthState, name: &str, password: &str| {
            login.verify(auth, name, password).await.unwrap_err().to_string()
        };
        assert!(refusal(&auth, ROOT, "secret").await.contains("not enabled"));
        auth.apply(&AuthCommand::Enable).unwrap();
        for _ in 0..2 {
            let caller = login.verify(&auth, ROOT, "secret").await.unwrap();
            assert_eq!((&*caller.user, caller.auth_revision), (ROOT, auth.revision()));
            for (name, password) in [(ROOT, "Secret"), (ROOT, ""), ("ada", "secret"), ("", "")] {
                assert!(refusal(&auth, name, password).await.contains("invalid user ID"));
            }
            assert!(refusal(&auth, "certificate", "").await.contains("no password user"));
        }
        assert_eq!(login.verified.lock().len(), 1, "only what is right is remembered");
        clock.advance(REMEMBERED);
        login.verify(&auth, ROOT, "secret").await.unwrap();
    }

    #[test]
    fn tokens_are_random_letters_and_are_forgotten_with_their_user() {
        let (login, _) = login();
        let tokens = [random_letters().unwrap(), random_letters().unwrap()];
        assert!(tokens[0] != tokens[1] && tokens[0].len() == TOKEN_LETTERS);
        assert!(tokens[0].bytes().all(|byte| byte.is_ascii_alphabetic()));
        let mut auth = example();
        auth.apply(&AuthCommand::Enable).unwrap();
        let shared = SharedAuth::new(auth.clone());
        shared.add_tokens(&[(tokens[0].clone(), ROOT.into())], Duration::ZERO);
        assert_eq!(&*login.caller(&shared, &tokens[0]).unwrap().user, ROOT);
        let unknown = login.caller(&shared, &tokens[1]).unwrap_err();
        assert_eq!(unknown.to_string(), "etcdserver: invalid auth token");
        shared.publish(Arc::new(auth.clone()));
        assert!(login.caller(&shared, &tokens[0]).is_ok(), "the password is the same");
        auth.apply(&AuthCommand::Disable).unwrap();
        shared.publish(Arc::new(auth));
        assert!(login.caller(&shared, &tokens[0]).is_err());
    }
}
