//! The file of tokens, service-account keys, and bindings that commands have made. It
//! holds no secret in clear: hashes of tokens, and public keys. Commands change it, a
//! running server reads it again.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::hex;
use crate::keys::PublicKey;
use crate::member::{Member, SERVICE_ACCOUNT, is_email};
use crate::policy::{Binding, Policy, check_resource};
use crate::role::Role;
use crate::token::{Hash, Token};

/// The name of the file in the directory of identities.
pub const FILE: &str = "identities.json";
const LOCK: &str = "lock";

/// A token as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredToken {
    pub id: String,
    pub principal: String,
    /// The hash of the secret, in hexadecimal.
    pub sha256: String,
    /// Seconds since 1970.
    pub created: u64,
    pub expires: u64,
}

/// A binding that a command has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredBinding {
    pub member: String,
    pub role: String,
    /// Empty for everything.
    #[serde(default)]
    pub resource: String,
}

impl StoredBinding {
    fn binding(&self) -> Result<Binding, String> {
        let StoredBinding { member, role, resource } = self;
        if !resource.is_empty() {
            check_resource(resource)?;
        }
        let found = Role::parse(role).ok_or_else(|| {
            let known: Vec<_> = Role::ALL.iter().map(|role| role.name()).collect();
            format!("unknown role {role:?}: use {}", known.join(", "))
        })?;
        let member = Member::parse(member)?;
        if member.is_everybody() {
            return Err("allUsers can only be bound in the policy file".into());
        }
        Ok(Binding {
            role: found,
            members: vec![member],
            resource: resource.as_str().into(),
            source: "stele auth bind".into(),
        })
    }
}

/// The public key of a service account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredKey {
    pub id: String,
    /// As in `NAME@CLUSTER`.
    pub email: String,
    /// Modulus and exponent of an RSA key, in base64.
    pub n: String,
    pub e: String,
    pub created: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    token: Vec<StoredToken>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    key: Vec<StoredKey>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    binding: Vec<StoredBinding>,
}

/// All tokens and keys.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    stored: Stored,
    tokens: HashMap<String, (Hash, usize)>,
    keys: HashMap<String, (PublicKey, usize)>,
    bindings: Vec<Binding>,
}

impl Credentials {
    pub fn parse(text: &str) -> Result<Credentials, String> {
        let stored = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Credentials::index(stored)
    }

    /// Reads the file; none is the same as an empty one.
    pub fn read(dir: &Path) -> io::Result<Credentials> {
        match fs::read_to_string(dir.join(FILE)) {
            Ok(text) => Credentials::parse(&text).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Credentials::default()),
            Err(error) => Err(error),
        }
    }

    fn index(stored: Stored) -> Result<Credentials, String> {
        let mut credentials = Credentials { stored, ..Credentials::default() };
        for (at, token) in credentials.stored.token.iter().enumerate() {
            let id = &token.id;
            let hash = hex::decode(&token.sha256).and_then(|hash| Hash::try_from(hash).ok());
            let hash = hash.ok_or_else(|| format!("token {id}: invalid sha256"))?;
            let member = Member::parse(&token.principal);
            let member = member.map_err(|why| format!("token {id}: {why}"))?;
            if !member.is_user() {
                return Err(format!("token {id}: {member} cannot hold a token"));
            }
            if credentials.tokens.insert(id.clone(), (hash, at)).is_some() {
                return Err(format!("two tokens with the id {id}"));
            }
        }
        for (at, key) in credentials.stored.key.iter().enumerate() {
            let id = &key.id;
            let public = PublicKey::rsa(&key.n, &key.e);
            let public = public.ok_or_else(|| format!("key {id}: invalid RSA key"))?;
            if !is_email(&key.email) {
                return Err(format!("key {id}: invalid service account {:?}", key.email));
            }
            if credentials.keys.insert(id.clone(), (public, at)).is_some() {
                return Err(format!("two keys with the id {id}"));
            }
        }
        let bindings: Result<_, _> =
            credentials.stored.binding.iter().map(StoredBinding::binding).collect();
        credentials.bindings = bindings?;
        Ok(credentials)
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.keys.is_empty() && self.bindings.is_empty()
    }

    pub fn bindings(&self) -> &[Binding] {
        &self.bindings
    }

    pub fn tokens(&self) -> &[StoredToken] {
        &self.stored.token
    }

    pub fn keys(&self) -> &[StoredKey] {
        &self.stored.key
    }

    /// Returns the stored token that a caller presents.
    pub fn find(&self, token: &Token) -> Option<&StoredToken> {
        let (hash, at) = self.tokens.get(&token.id)?;
        crate::token::is_equal(hash, &token.hash).then(|| &self.stored.token[*at])
    }

    /// Returns a service account's key and its email address.
    pub fn key(&self, id: &str) -> Option<(&PublicKey, &str)> {
        let (public, at) = self.keys.get(id)?;
        Some((public, &self.stored.key[*at].email))
    }
}

/// The directory of identities, locked for a change.
pub struct Changing {
    dir: PathBuf,
    stored: Stored,
    /// Unlocked when it is closed.
    _lock: File,
}

impl Changing {
    /// Locks the directory, and creates it if necessary.
    pub fn begin(dir: &Path) -> io::Result<Changing> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let mut options = OpenOptions::new();
        let lock = options.create(true).write(true).truncate(false).mode(0o600);
        let lock = lock.open(dir.join(LOCK))?;
        lock.lock()?;
        let stored = Credentials::read(dir)?.stored;
        Ok(Changing { dir: dir.into(), stored, _lock: lock })
    }

    /// Adds a token for a principal and returns its text, which is kept nowhere.
    pub fn create_token(
        &mut self,
        principal: &str,
        now: u64,
        expires: u64,
    ) -> Result<(String, String), String> {
        let member = Member::parse(principal)?;
        if !member.is_user() {
            return Err(format!(
                "{member} cannot hold a token: use user:NAME or serviceAccount:NAME@CLUSTER"
            ));
        }
        let (token, text) = Token::create()?;
        self.stored.token.push(StoredToken {
            id: token.id.clone(),
            principal: principal.into(),
            sha256: hex::encode(&token.hash),
            created: now,
            expires,
        });
        Ok((token.id, text))
    }

    /// Adds a binding. Returns whether it is new.
    pub fn bind(&mut self, binding: StoredBinding) -> Result<bool, String> {
        binding.binding()?;
        let is_new = !self.stored.binding.contains(&binding);
        if is_new {
            self.stored.binding.push(binding);
        }
        Ok(is_new)
    }

    /// Removes a binding. Returns whether it existed. The last binding of an administrator
    /// stays, unless the policy file has one.
    pub fn unbind(&mut self, binding: &StoredBinding, policy: &Policy) -> Result<bool, String> {
        binding.binding()?;
        let Some(at) = self.stored.binding.iter().position(|one| one == binding) else {
            return Ok(false);
        };
        let removed = self.stored.binding.remove(at);
        let admin = |one: &StoredBinding| one.binding().is_ok_and(|one| one.is_of_admin());
        if admin(&removed) && !policy.has_admin() && !self.stored.binding.iter().any(admin) {
            self.stored.binding.insert(at, removed);
            return Err("it is the last binding of stele.admin: bind another member first".into());
        }
        Ok(true)
    }

    pub fn add_key(&mut self, key: StoredKey) {
        self.stored.key.push(key);
    }

    /// Removes a token or key. Returns the principal that held it.
    pub fn revoke(&mut self, id: &str) -> Option<String> {
        if let Some(at) = self.stored.token.iter().position(|token| token.id == id) {
            return Some(self.stored.token.remove(at).principal);
        }
        let at = self.stored.key.iter().position(|key| key.id == id)?;
        Some(format!("{SERVICE_ACCOUNT}{}", self.stored.key.remove(at).email))
    }

    /// Writes the file: a crash leaves the earlier one or the new one.
    pub fn save(self) -> io::Result<()> {
        let text = serde_json::to_string_pretty(&self.stored).map_err(io::Error::other)?;
        // An unreadable file would lock everybody out.
        Credentials::parse(&text).map_err(io::Error::other)?;
        let temporary = self.dir.join(format!("{FILE}.new"));
        let mut options = OpenOptions::new();
        let mut file =
            options.create(true).write(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, self.dir.join(FILE))?;
        File::open(&self.dir)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_found_until_it_is_revoked_and_its_secret_is_not_stored() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("auth");
        assert!(Credentials::read(&dir).unwrap().is_empty());
        let mut changing = Changing::begin(&dir).unwrap();
        let (id, text) = changing.create_token("user:ada", 5, 9).unwrap();
        changing.create_token("serviceAccount:ci@stele", 5, 9).unwrap();
        changing.save().unwrap();
        let credentials = Credentials::read(&dir).unwrap();
        let found = credentials.find(&Token::parse(&text).unwrap()).unwrap();
        assert_eq!((&*found.principal, found.created, found.expires), ("user:ada", 5, 9));
        let file = fs::read_to_string(dir.join(FILE)).unwrap();
        assert!(!file.contains(text.split('_').nth(2).unwrap()));
        for (path, mode) in [(dir.clone(), 0o700), (dir.join(FILE), 0o600)] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode);
        }
        let mut changing = Changing::begin(&dir).unwrap();
        assert_eq!(changing.revoke(&id).as_deref(), Some("user:ada"));
        assert_eq!(changing.revoke(&id), None);
        changing.save().unwrap();
        let credentials = Credentials::read(&dir).unwrap();
        assert_eq!(credentials.find(&Token::parse(&text).unwrap()), None);
        assert_eq!(credentials.tokens().len(), 1);
    }

    #[test]
    fn the_last_administrator_stays() {
        let dir = tempfile::tempdir().unwrap();
        let binding = |member: &str| StoredBinding {
            member: member.into(),
            role: "stele.admin".into(),
            resource: String::new(),
        };
        let mut changing = Changing::begin(dir.path()).unwrap();
        assert_eq!(changing.bind(binding("user:ada")), Ok(true));
        assert_eq!(changing.bind(binding("user:ada")), Ok(false));
        assert_eq!(changing.bind(binding("user:bob")), Ok(true));
        assert!(changing.bind(binding("allUsers")).is_err());
        assert!(changing.bind(StoredBinding { role: "x".into(), ..binding("user:a") }).is_err());
        let none = Policy::default();
        assert_eq!(changing.unbind(&binding("user:bob"), &none), Ok(true));
        assert_eq!(changing.unbind(&binding("user:bob"), &none), Ok(false));
        assert!(changing.unbind(&binding("user:ada"), &none).unwrap_err().contains("last"));
        changing.save().unwrap();
        let credentials = Credentials::read(dir.path()).unwrap();
        assert!(credentials.bindings()[0].is_of_admin() && !credentials.is_empty());
        let admin = Policy::parse("[[binding]]\nrole='stele.admin'\nmembers=['user:c']").unwrap();
        let mut changing = Changing::begin(dir.path()).unwrap();
        assert_eq!(changing.unbind(&binding("user:ada"), &admin), Ok(true));
    }

    #[test]
    fn another_secret_with_the_same_id_is_not_found() {
        let (token, _) = Token::create().unwrap();
        let hash = hex::encode(&token.hash);
        let one = format!(
            r#"{{"id": "{}", "principal": "user:a", "sha256": "{hash}", "created": 1, "expires": 2}}"#,
            token.id
        );
        let line = format!(r#"{{"token": [{one}]}}"#);
        let credentials = Credentials::parse(&line).unwrap();
        assert!(credentials.find(&token).is_some());
        let (mut other, _) = Token::create().unwrap();
        other.id = token.id.clone();
        assert!(credentials.find(&other).is_none());
        for wrong in [
            line.replace("user:a", "group:a"),
            line.replace(&hash, "00"),
            line.replace(&one, &format!("{one},{one}")),
            line.replace("created", "made"),
        ] {
            assert!(Credentials::parse(&wrong).is_err(), "{wrong}");
        }
    }
}
