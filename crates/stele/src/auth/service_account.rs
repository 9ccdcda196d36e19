//! Keys of service accounts in the format that Google's client libraries read.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use ring::digest::{SHA256, digest};
use ring::signature::RsaKeyPair;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use stele_auth::credentials::StoredKey;
use stele_auth::member::is_email;

use super::AuthDir;
use super::identities::{change, now};
use crate::Outcome;
use crate::private::read_secret;

/// Create a key of a service account and print it as a JSON file.
#[derive(Args)]
pub struct CreateKey {
    /// Name of the service account
    name: String,
    /// Name of the cluster, the part of the address after @
    #[arg(long, default_value = "stele")]
    cluster: String,
    /// Use this RSA key (PKCS #8, PEM) instead of one that openssl generates
    #[arg(long, value_name = "FILE")]
    private_key: Option<PathBuf>,
    #[command(flatten)]
    dir: AuthDir,
}

impl CreateKey {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let email = format!("{}@{}", self.name, self.cluster);
        if !is_email(&email) {
            bail!("invalid service account {email:?}: use letters, digits and - in its name");
        }
        let pem = match &self.private_key {
            Some(file) => read_secret(file)?.into_exposed(),
            None => generate()?,
        };
        let der = PrivatePkcs8KeyDer::from_pem_slice(&pem)
            .map_err(|error| anyhow!("the private key is not PKCS #8 in PEM: {error}"))?;
        let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).map_err(|why| {
            anyhow!("the private key is not an RSA key of 2048 bits or more: {why}")
        })?;
        let public = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(key.public());
        let hash = digest(&SHA256, &public.n);
        let id: String = hash.as_ref()[..20].iter().map(|byte| format!("{byte:02x}")).collect();
        let mut changing = change(&self.dir)?;
        changing.add_key(StoredKey {
            id: id.clone(),
            email: email.clone(),
            n: URL_SAFE_NO_PAD.encode(&public.n),
            e: URL_SAFE_NO_PAD.encode(&public.e),
            created: now(),
        });
        changing.save().context("saving the public key")?;
        let file = json!({
            "type": "service_account",
            "project_id": self.cluster,
            "private_key_id": id,
            "private_key": String::from_utf8(pem).context("the private key is not text")?,
            "client_email": email,
            "client_id": "",
            "auth_uri": "https://accounts.google.com/o/oauth2/auth",
            "token_uri": "https://oauth2.googleapis.com/token",
            "universe_domain": "googleapis.com",
        });
        eprintln!("created key {id} for serviceAccount:{email}");
        writeln!(io::stdout(), "{file:#}")?;
        Ok(Outcome::Sound)
    }
}

/// Generates a key. The cryptography library of the server cannot.
fn generate() -> anyhow::Result<Vec<u8>> {
    let arguments = ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
    let ran = Command::new("openssl").args(arguments).stderr(Stdio::null()).output();
    match ran {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => bail!("openssl cannot generate a key: {}", output.status),
        Err(error) => bail!(
            "cannot run openssl ({error}): generate an RSA key elsewhere and pass it with \
             --private-key"
        ),
    }
}
