//! Users, roles and tokens: changes of them, and the check of every command's
//! caller.

use std::sync::Arc;

use super::run::EntryRun;
use crate::auth::{Access, AuthState, permit};
use crate::command::{AuthCommand, Caller, Command};
use crate::error::Result;

impl EntryRun<'_> {
    /// Refuses a command that its caller may not propose, by the permissions as
    /// of the entries before.
    pub fn check_caller(&mut self, caller: Option<&Caller>, command: &Command) -> Result<()> {
        self.overlay.user = caller.map(|caller| caller.user.clone());
        if self.overlay.auth.is_none() && !self.overlay.state.auth.is_enabled() {
            return Ok(());
        }
        let auth = self.auth();
        let overlay = &self.overlay;
        permit(&auth, caller, Access::Command(command), &|id| overlay.lease_keys(id))
    }

    pub fn change_auth(&mut self, command: &AuthCommand) -> Result<()> {
        let mut auth = AuthState::clone(&self.auth());
        auth.apply(command)?;
        if let AuthCommand::Token { request, .. } = command {
            self.overlay.tokens.push((request.password.clone(), request.name.clone()));
            return Ok(());
        }
        self.overlay.watermarks.has_auth = true;
        self.overlay.auth = Some(Arc::new(auth));
        Ok(())
    }

    fn auth(&self) -> Arc<AuthState> {
        self.overlay.auth.clone().unwrap_or_else(|| self.overlay.state.auth.get())
    }
}
