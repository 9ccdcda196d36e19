//! The users, roles and tokens of a member, shared by the applier and the
//! services.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use super::AuthState;
use super::tokens::Tokens;

/// The users and roles as of the newest applied entry, and the tokens.
pub struct SharedAuth {
    state: RwLock<Arc<AuthState>>,
    /// Whether callers are checked, to decide without the lock.
    enabled: AtomicBool,
    pub(super) tokens: Tokens,
}

impl SharedAuth {
    pub fn new(state: AuthState) -> SharedAuth {
        let enabled = AtomicBool::new(state.is_enabled());
        SharedAuth { state: RwLock::new(Arc::new(state)), enabled, tokens: Tokens::default() }
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    pub fn get(&self) -> Arc<AuthState> {
        self.state.read().clone()
    }

    /// Publishes the changes of an entry. Tokens of users that were deleted or
    /// have another password are forgotten.
    pub(crate) fn publish(&self, new: Arc<AuthState>) {
        let old = std::mem::replace(&mut *self.state.write(), new.clone());
        self.enabled.store(new.is_enabled(), Ordering::Release);
        let password = |state: &AuthState, user: &str| {
            state.user(user).filter(|_| state.is_enabled()).map(|user| user.password.clone())
        };
        self.tokens.forget(|user| {
            let now = password(&new, user);
            now.is_none() || now != password(&old, user)
        });
    }

    /// Remembers the tokens that an entry has issued: pairs of token and user.
    pub(crate) fn add_tokens(&self, issued: &[(String, String)], now: Duration) {
        for (token, user) in issued {
            self.tokens.add(token, user, now);
        }
    }
}
