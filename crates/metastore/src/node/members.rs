//! The members of the group, and how they are changed.

use std::sync::Arc;

use super::lifecycle::Node;
use crate::consensus::{Member, MemberChange};
use crate::error::{Error, Result};
use crate::peer::PeerUrl;

impl Node {
    /// Returns all members, ordered by id; `None` if the member runs alone without
    /// addresses for others.
    pub fn members(&self) -> Option<Arc<Vec<Member>>> {
        self.shared.group.members()
    }

    /// Returns whether this member is a learner, which answers few requests.
    pub fn is_learner(&self) -> bool {
        self.shared.group.is_learner()
    }

    /// Adds a member, which is started afterwards. Returns its id, which no
    /// member has ever had.
    pub async fn add_member(&self, peer_urls: Vec<String>, learner: bool) -> Result<u64> {
        let peer_urls = check_urls(&peer_urls)?;
        let id = self.shared.settings.world.random.next_u64().max(1);
        let change = MemberChange::Add { id, peer_urls, learner };
        self.shared.group.change_members(change).await?;
        Ok(id)
    }

    pub async fn remove_member(&self, id: u64) -> Result<()> {
        self.shared.group.change_members(MemberChange::Remove { id }).await
    }

    /// Replaces the addresses of a member for other members.
    pub async fn update_member(&self, id: u64, peer_urls: Vec<String>) -> Result<()> {
        let peer_urls = check_urls(&peer_urls)?;
        self.shared.group.change_members(MemberChange::Update { id, peer_urls }).await
    }

    /// Makes a learner a voter, once it has caught up.
    pub async fn promote_member(&self, id: u64) -> Result<()> {
        self.shared.group.change_members(MemberChange::Promote { id }).await
    }
}

/// Returns the URLs in the form in which they are compared.
fn check_urls(urls: &[String]) -> Result<Vec<String>> {
    let parse = |url: &String| PeerUrl::parse(url).map(|url| url.to_string());
    let urls: Result<Vec<String>> = urls.iter().map(parse).collect();
    match urls {
        Ok(urls) if !urls.is_empty() => Ok(urls),
        _ => Err(Error::InvalidMemberUrls),
    }
}
