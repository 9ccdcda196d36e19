//! Tokens from a token server in the same process.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex as Lock;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::identity::Identity;
use super::tokens::{LIFETIME_MAX, RENEW_BEFORE_MAX, Token};
use super::{Tokens, file};
use crate::tests::flaky::Flaky;
use crate::{Client, Mutation};

/// A key without any privileges.
const TEST_KEY: &str = "\
    MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDqTtbo8jYi/iAs\n\
    rk9dP7fx/PCD/y2MsAKqXdn2Yn077WhpHXoGwRjmjAzrdk/UyUP044ZgdPCS+Ea3\n\
    q+YhcyFWI60396DuBVWnyAuRiLopJbMIXaYDlTGTMhJO5Zkk28dtp43KufU4OoSv\n\
    8YTM5kRf56KnxO84BHXk1GLAuj4swOsZmtCY98lvxoYAL62ctXBf6ELbarkOR3bS\n\
    gG8jUxbxvt9UabYoNQQJqd17Hr/i6q5ZT0Gl6bcCV47my6Gjd9chimcd3rIOaGcB\n\
    pDArT0ErmhAuVd2oUzf4eCOBKM1z0bb0hEvNRY+9pve26Hx3qyWZS0F5NXvmOwNi\n\
    38x053GpAgMBAAECgf8cQiXpMk0VK1D2Eo+/z09//+GCCeSUcyXfJjKDZJ11/Mv6\n\
    4XM2HVPDemCUhVBbeWqYvlgWigP5tbfRrwmyPxBmMydQ+KyQCFSsR5QdmT/adpGB\n\
    EMpU5El2VzOeEFLH/zmuH+cZ7BOHFIesMJSzoZHdfzI+yaGQP/l3/6VpWQzmmKKu\n\
    JMAUeJ6BYgUHK1N4egLEi7BTf0ijN0odicGFbrabz56tBBgnizOYCrNM8mYNPJ8N\n\
    Cf0/hyJvhP44XEdcgDVbfjZ1PalCk1Sw5Pr2lJ+OeV3e7gHUYVDlFBghQ0I1yQv7\n\
    TfJaKjWUn3riioJxHyKH5wLmCB6dghqAPAA7K+ECgYEA9ujiTx17g3iub2Dmsb//\n\
    3fDVixmI59AkE2FtywhFR12pKx/24FaGnuVrK6pJzeiLIPOsGZcYiX4gv8KSXcx6\n\
    CAGCG/JFtd3YbUpedwbHkKOF8qqdwwJwycrtT8YSll9NFpxRnGTQ1t7qsRGeQs/r\n\
    h9ha6wILuDL45lLf7M7l/SECgYEA8u8vPEK3xaQpgAqLfUsr4T/3GCwhKkudQZni\n\
    /tH6Pyw9RGDs96UBd7FBb8EZxWxLdkhTBILBkVEwJUBiu0OSekbIfVNd9O1N7SRN\n\
    oXLLYKAlVbtNU5Mgch3Vin0MxlVy8x5aqfaPKNfVr0KnV9p7nH1C5yTtgCZHjfVc\n\
    GfmQm4kCgYEAhp2z/TRyydw7Jmhrfo/SnZuXoY4bcV+uu45MAP0SYHV1LRjxTaB/\n\
    JxSn2JewQ348lIul0hHqA9RrYIFhsZgxFDpWSIxPa3d3byaz2CsvFPHCrupMtyyW\n\
    d76Wof641ZlB+0jgyebBYdUJmd6kLYMUw+y2rRhhcV0BDPo0MfUfuWECgYEA2Jnc\n\
    Ms2FzymUev5r6pXYlOiUZrAKDg0HNFOB6hPMHQFTyyDkh9VOXqrjnkG8uaLaEadg\n\
    pbfz4J5T4BLtNOyFsJJl9iAbuOLQxSzGLroMjaWcRDlRM8ANgNIK8ISYnEnZyNz6\n\
    l2onsJHoi3BRhmpeJmQk/7SUMdtvlyn6KYqznYkCgYEAgQssKny3NRaGAMZPkcWz\n\
    uPxaFKoAfwKY0ZzPiB/T+xkznp79gvCxogiesqC761MIqcID0bhyphAJhquf9oAp\n\
    MXiqav+KgeZFX6VfT4+VHVuyRlqDqjj6G6qQ1OWFh5dy+rjPt6FDs7N/jT4gauBC\n\
    +o13KiWgr7ug+fTqSzwJKek=\n\
    ";

fn pem() -> String {
    let label = "PRIVATE KEY";
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", TEST_KEY.trim())
}

/// Sends the same response to every request, and records the requests.
struct TokenServer {
    address: String,
    requests: Arc<Lock<Vec<String>>>,
}

impl TokenServer {
    async fn start(status: &'static str, body: Value) -> TokenServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Lock::new(Vec::new()));
        let recorded = requests.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let request = respond(stream, status, &body.to_string()).await;
                recorded.lock().push(request);
            }
        });
        TokenServer { address, requests }
    }

    async fn granting(seconds: u64) -> TokenServer {
        let token = json!({"access_token": "tok", "expires_in": seconds, "token_type": "Bearer"});
        TokenServer::start("200 OK", token).await
    }

    fn requested(&self) -> usize {
        self.requests.lock().len()
    }

    fn service_account(&self) -> Identity {
        let file = json!({
            "type": "service_account",
            "client_email": "me@example.com",
            "private_key": pem(),
            "private_key_id": "k1",
            "token_uri": format!("http://{}/token", self.address),
        });
        parsed(&file)
    }

    fn user(&self) -> Identity {
        let file = json!({
            "type": "authorized_user",
            "client_id": "id",
            "client_secret": "a secret",
            "refresh_token": "1//r",
            "token_uri": format!("http://{}/token", self.address),
        });
        parsed(&file)
    }
}

/// Reads one request, responds to it, and returns it.
async fn respond(mut stream: TcpStream, status: &str, body: &str) -> String {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8(request.clone()).unwrap();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        if text.split_once("\r\n\r\n").is_some_and(|(_, body)| body.len() >= length) {
            break;
        }
        if stream.read_buf(&mut request).await.unwrap() == 0 {
            break;
        }
    }
    let length = body.len();
    let reply = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(reply.as_bytes()).await.unwrap();
    String::from_utf8(request).unwrap()
}

fn parsed(file: &Value) -> Identity {
    file::parse(file.to_string().as_bytes()).unwrap()
}

async fn header(tokens: &Tokens) -> String {
    tokens.authorization().await.unwrap().to_str().unwrap().to_string()
}

#[tokio::test]
async fn a_service_account_signs_a_claim_for_its_token() {
    let server = TokenServer::granting(3600).await;
    let identity = server.service_account();
    let Identity::ServiceAccount { key, .. } = &identity else { panic!("another identity") };
    let public = key.public().to_vec();
    assert_eq!(header(&Tokens::of(identity)).await, "Bearer tok");

    let request = server.requests.lock()[0].clone();
    assert!(request.starts_with("POST /token HTTP/1.1\r\n"), "{request}");
    let grant = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=";
    let claim = request.split_once(grant).unwrap().1;
    let [header, claims, signature] = claim.split('.').collect::<Vec<_>>()[..] else {
        panic!("not three parts: {claim}");
    };
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public)
        .verify(format!("{header}.{claims}").as_bytes(), &decoded(signature))
        .unwrap();
    let header: Value = serde_json::from_slice(&decoded(header)).unwrap();
    assert_eq!(header, json!({"alg": "RS256", "typ": "JWT", "kid": "k1"}));
    let claims: Value = serde_json::from_slice(&decoded(claims)).unwrap();
    assert_eq!(claims["iss"], "me@example.com");
    assert_eq!(claims["aud"], format!("http://{}/token", server.address));
    assert!(claims["scope"].as_str().unwrap().contains("bigtable.data"));
    assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 3600);
}

#[tokio::test]
async fn a_user_presents_the_refresh_token() {
    let server = TokenServer::granting(3600).await;
    assert_eq!(header(&Tokens::of(server.user())).await, "Bearer tok");
    let request = server.requests.lock()[0].clone();
    let form = "grant_type=refresh_token&client_id=id&client_secret=a%20secret\
                &refresh_token=1%2F%2Fr";
    assert!(request.ends_with(form), "{request}");
}

#[tokio::test]
async fn a_machine_queries_its_metadata_server() {
    let server = TokenServer::granting(3600).await;
    let machine = Identity::machine(&server.address).unwrap();
    assert_eq!(header(&Tokens::of(machine)).await, "Bearer tok");
    let request = server.requests.lock()[0].to_lowercase();
    let path = "get /computemetadata/v1/instance/service-accounts/default/token http/1.1";
    assert!(request.starts_with(path), "{request}");
    assert!(request.contains("metadata-flavor: google\r\n"), "{request}");
}

/// The configuration of a workload whose provider writes its token to a file.
fn external_account(server: &TokenServer, subject: &std::path::Path) -> Value {
    json!({
        "type": "external_account",
        "audience": "//iam.googleapis.com/pools/p",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": format!("http://{}/sts", server.address),
        "credential_source": {"file": subject},
    })
}

#[tokio::test]
async fn a_workload_exchanges_the_current_token_of_its_provider() {
    let server = TokenServer::granting(3600).await;
    let dir = tempfile::tempdir().unwrap();
    let subject = dir.path().join("token");
    std::fs::write(&subject, "first\n").unwrap();
    let tokens = Tokens::of(parsed(&external_account(&server, &subject)));
    assert_eq!(header(&tokens).await, "Bearer tok");
    let request = server.requests.lock()[0].clone();
    assert!(request.starts_with("POST /sts HTTP/1.1\r\n"), "{request}");
    for field in [
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange",
        "audience=%2F%2Fiam.googleapis.com%2Fpools%2Fp",
        "requested_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token",
        "subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Ajwt",
        "scope=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fbigtable.data",
    ] {
        assert!(request.contains(field), "{field} in {request}");
    }
    assert!(request.ends_with("&subject_token=first"), "{request}");

    // The provider replaces its token from time to time.
    std::fs::write(&subject, "second").unwrap();
    tokens.current.write().as_mut().unwrap().renew_at = Instant::now();
    header(&tokens).await;
    assert!(server.requests.lock()[1].ends_with("&subject_token=second"));
}

#[tokio::test]
async fn a_subject_token_may_come_from_a_server_and_in_json() {
    let provider = TokenServer::start("200 OK", json!({"value": "theirs"})).await;
    let server = TokenServer::granting(3600).await;
    let mut file = external_account(&server, std::path::Path::new("unused"));
    file["client_id"] = "id".into();
    file["client_secret"] = "secret".into();
    file["credential_source"] = json!({
        "url": format!("http://{}/identity", provider.address),
        "headers": {"Metadata": "True"},
        "format": {"type": "json", "subject_token_field_name": "value"},
    });
    assert_eq!(header(&Tokens::of(parsed(&file))).await, "Bearer tok");
    let request = provider.requests.lock()[0].to_lowercase();
    assert!(
        request.starts_with("get /identity") && request.contains("metadata: true"),
        "{request}"
    );
    let request = server.requests.lock()[0].clone();
    assert!(request.ends_with("&subject_token=theirs"), "{request}");
    assert!(request.contains("authorization: Basic aWQ6c2VjcmV0\r\n"), "{request}");

    file["credential_source"]["format"]["subject_token_field_name"] = "other".into();
    let error = Tokens::of(parsed(&file)).authorization().await.unwrap_err().to_string();
    assert!(error.contains("missing field `other`") && error.contains("/identity"), "{error}");
}

#[tokio::test]
async fn an_identity_may_act_as_a_service_account() {
    let generated = json!({
        "access_token": "own", "expires_in": 60,
        "accessToken": "theirs", "expireTime": "2030-01-01T00:00:00Z",
    });
    let server = TokenServer::start("200 OK", generated).await;
    let url =
        format!("http://{}/v1/projects/-/serviceAccounts/a@b:generateAccessToken", server.address);
    let dir = tempfile::tempdir().unwrap();
    let subject = dir.path().join("token");
    std::fs::write(&subject, "subject").unwrap();
    let mut federated = external_account(&server, &subject);
    federated["service_account_impersonation_url"] = url.clone().into();
    federated["service_account_impersonation"] = json!({"token_lifetime_seconds": 600});
    let impersonated = json!({
        "type": "impersonated_service_account",
        "service_account_impersonation_url": url,
        "delegates": ["c@d"],
        "source_credentials": {
            "type": "authorized_user",
            "client_id": "id",
            "client_secret": "s",
            "refresh_token": "r",
            "token_uri": format!("http://{}/token", server.address),
        },
    });
    for (file, lifetime, delegates) in
        [(federated, 600, json!([])), (impersonated, 3600, json!(["c@d"]))]
    {
        let tokens = Tokens::of(parsed(&file));
        let before = Instant::now();
        assert_eq!(header(&tokens).await, "Bearer theirs");
        let expires_at = tokens.current.read().clone().unwrap().expires_at;
        let lasts = expires_at - before;
        assert_eq!(lasts.as_secs(), lifetime);
        let request = server.requests.lock().last().unwrap().clone();
        let path = "POST /v1/projects/-/serviceAccounts/a@b:generateAccessToken HTTP/1.1";
        assert!(request.starts_with(path), "{request}");
        assert!(request.contains("authorization: Bearer own\r\n"), "{request}");
        let body = request.split_once("\r\n\r\n").unwrap().1;
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["lifetime"], format!("{lifetime}s"));
        assert_eq!(body["delegates"], delegates);
        assert_eq!(body["scope"].as_array().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn the_token_goes_with_every_call() {
    let server = TokenServer::granting(3600).await;
    let flaky = Flaky::default();
    let anonymous = flaky.client();
    let transport = anonymous.shared.admin.clone();
    let tokens = Some(Tokens::of(server.user()));
    let options = anonymous.options().clone();
    let client = Client::with(options, vec![transport.clone()], transport, tokens);
    client.table("t").unwrap().mutate_row("k", [Mutation::delete_row()]).await.unwrap();
    assert_eq!(flaky.0.lock().headers.get("authorization").unwrap(), "Bearer tok");
}

#[tokio::test]
async fn a_token_is_fetched_once_for_all_and_kept() {
    let server = TokenServer::granting(3600).await;
    let tokens = Arc::new(Tokens::of(server.user()));
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let tokens = tokens.clone();
            tokio::spawn(async move { header(&tokens).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), "Bearer tok");
    }
    assert_eq!(server.requested(), 1);
}

#[tokio::test]
async fn a_token_is_replaced_before_it_expires() {
    let server = TokenServer::granting(3600).await;
    let tokens = Tokens::of(server.user());
    header(&tokens).await;
    let token = tokens.current.read().clone().unwrap();
    assert_eq!(token.expires_at - token.renew_at, RENEW_BEFORE_MAX);
    tokens.current.write().as_mut().unwrap().renew_at = Instant::now();
    header(&tokens).await;
    assert_eq!(server.requested(), 2);
}

#[tokio::test]
async fn a_token_without_end_is_not_cached_for_ever() {
    let server = TokenServer::granting(u64::MAX).await;
    let tokens = Tokens::of(server.user());
    header(&tokens).await;
    let token = tokens.current.read().clone().unwrap();
    assert!(token.expires_at <= Instant::now() + LIFETIME_MAX);
}

#[tokio::test]
async fn a_token_that_cannot_be_replaced_serves_until_it_expires() {
    let server = TokenServer::start("400 Bad Request", json!({"error": "invalid_grant"})).await;
    let tokens = Tokens::of(server.user());
    let now = Instant::now();
    let later = now + Duration::from_secs(600);
    let old = "Bearer old".parse().unwrap();
    *tokens.current.write() = Some(Token { header: old, renew_at: now, expires_at: later });
    assert_eq!(header(&tokens).await, "Bearer old");
    tokens.current.write().as_mut().unwrap().expires_at = now;
    let error = tokens.authorization().await.unwrap_err().to_string();
    assert!(error.contains("400 Bad Request") && error.contains("invalid_grant"), "{error}");
    assert!(error.contains(&server.address), "{error}");
}

#[test]
fn files_without_an_identity_are_rejected_with_the_reason() {
    for (file, says) in [
        ("", "EOF"),
        ("{}", "type"),
        (r#"{"type": "external_account"}"#, "external_account"),
        (r#"{"type": "external_account"}"#, "audience"),
        (
            r#"{"type": "external_account", "audience": "a", "subject_token_type": "t",
                "token_url": "https://x/", "credential_source": {"environment_id": "aws1"}}"#,
            "only file and url are supported",
        ),
        (r#"{"type": "gdch_service_account"}"#, "use service_account"),
        (
            r#"{"type": "impersonated_service_account",
                "service_account_impersonation_url": "http://example.com/x",
                "source_credentials": {}}"#,
            "only over https",
        ),
        (
            r#"{"type": "impersonated_service_account",
                "service_account_impersonation_url": "https://example.com/x",
                "source_credentials": {"type": "impersonated_service_account"}}"#,
            "delegates",
        ),
        (r#"{"type": "service_account", "client_email": "a"}"#, "private_key"),
        (r#"{"type": "service_account", "client_email": "a", "private_key": "b"}"#, "not PKCS #8"),
        (
            r#"{"type": "authorized_user", "client_id": "a", "client_secret": "b",
                "refresh_token": "c", "token_uri": "not a uri"}"#,
            "token_uri",
        ),
    ] {
        let Err(why) = file::parse(file.as_bytes()) else { panic!("taken: {file}") };
        assert!(why.contains(says), "{file}: {why}");
    }
    let missing = Identity::from_file(std::path::Path::new("no-such-file.json"));
    assert!(missing.err().unwrap().contains("no-such-file.json"));
}
