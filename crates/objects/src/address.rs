//! URLs of stores.

use std::fmt;
use std::path::PathBuf;

use crate::{Error, Result};

/// Where files are kept: a bucket and a prefix in it, or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    S3(Bucket),
    Google(Bucket),
    Azure(Bucket),
    Directory(PathBuf),
}

/// A bucket (a container, for Azure) and the prefix of all keys in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub name: String,
    /// Without slashes at its ends; may be empty.
    pub prefix: String,
}

impl Address {
    /// Parses `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or
    /// `file:///directory`. Credentials come from the environment, never from a URL,
    /// because URLs are logged.
    pub fn parse(url: &str) -> Result<Address> {
        let shown = without_credentials(url);
        let invalid = |why: &str| Error::Url { url: shown.clone(), why: why.into() };
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(invalid(
                "use s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///directory",
            ));
        };
        if scheme == "file" {
            return match rest.starts_with('/') {
                true => Ok(Address::Directory(PathBuf::from(rest))),
                false => {
                    Err(invalid("a directory needs an absolute path, as in file:///srv/stele"))
                }
            };
        }
        if rest.contains('@') {
            return Err(invalid("credentials belong into the environment, not into the URL"));
        }
        let bucket = bucket(rest).map_err(invalid)?;
        match scheme {
            "s3" => Ok(Address::S3(bucket)),
            "gs" => Ok(Address::Google(bucket)),
            "az" => Ok(Address::Azure(bucket)),
            _ => Err(invalid("unknown kind of store: use s3://, gs://, az:// or file:///")),
        }
    }

    /// Reports whether the project's tests run against a store of this kind.
    pub fn is_tested(&self) -> bool {
        !matches!(self, Address::Google(_))
    }
}

fn bucket(rest: &str) -> Result<Bucket, &'static str> {
    if rest.contains(['?', '#']) {
        return Err("options belong into the environment, not into the URL");
    }
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.trim_matches('/');
    let plain = |ch: char| ch.is_ascii_alphanumeric() || "-_.".contains(ch);
    if name.is_empty() || !name.chars().all(plain) {
        return Err("the name of the bucket must consist of letters, digits, '-', '_' and '.'");
    }
    let segment =
        |part: &str| !part.is_empty() && part.chars().all(plain) && part != "." && part != "..";
    if !prefix.is_empty() && !prefix.split('/').all(segment) {
        return Err("the prefix must consist of letters, digits, '-', '_', '.' and '/'");
    }
    Ok(Bucket { name: name.into(), prefix: prefix.into() })
}

/// Returns a URL for messages: what stands before an `@` or after a `?` may be secret.
fn without_credentials(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://...@{host}"),
        (None, Some((_, host))) => format!("...@{host}"),
        (_, None) => url.to_string(),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, bucket) = match self {
            Address::Directory(path) => return write!(out, "file://{}", path.display()),
            Address::S3(bucket) => ("s3", bucket),
            Address::Google(bucket) => ("gs", bucket),
            Address::Azure(bucket) => ("az", bucket),
        };
        write!(out, "{scheme}://{}", bucket.name)?;
        match bucket.prefix.as_str() {
            "" => Ok(()),
            prefix => write!(out, "/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_shown() {
        for (url, shown) in [
            ("s3://bucket", "s3://bucket"),
            ("s3://bucket/", "s3://bucket"),
            ("s3://bucket/a/b/", "s3://bucket/a/b"),
            ("gs://bucket/a", "gs://bucket/a"),
            ("az://container/a", "az://container/a"),
            ("file:///srv/stele", "file:///srv/stele"),
        ] {
            assert_eq!(Address::parse(url).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn invalid_addresses_are_refused_with_a_reason() {
        for (url, why) in [
            ("bucket", "use s3://"),
            ("ftp://bucket", "unknown kind"),
            ("file://srv", "absolute"),
            ("s3:///prefix", "name of the bucket"),
            ("s3://b/a//b", "prefix"),
            ("s3://b/../b", "prefix"),
            ("s3://b/a?region=x", "environment"),
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }

    #[test]
    fn credentials_are_refused_and_not_shown() {
        for url in ["s3://key:secret@bucket/a", "key:secret@bucket", "s3://b?secret=secret"] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
