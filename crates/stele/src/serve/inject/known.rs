//! The methods that servers have. A rule that no call can match is a mistake and is
//! rejected.

use std::sync::LazyLock;

use prost::Message;
use prost_types::FileDescriptorSet;
use stele_grpc::MethodPath;

use super::Rule;

struct Method {
    service: String,
    name: String,
}

static METHODS: LazyLock<Vec<Method>> = LazyLock::new(|| {
    let sets = [
        stele_bigtable::proto::DESCRIPTORS,
        stele_catalogue::proto::DESCRIPTORS,
        stele_mounttable::proto::DESCRIPTORS,
        stele_tables_api::proto::DESCRIPTORS,
        stele_metastore::etcd::proto::DESCRIPTORS,
        stele_metastore::native::DESCRIPTORS,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let admin = stele_bigtable::proto::ADMIN_METHODS.lines().filter_map(|line| {
        let (service, name) = line.split_once('/')?;
        Some(Method { service: service.into(), name: name.into() })
    });
    sets.into_iter().flat_map(methods_of).chain(admin).collect()
});

fn methods_of(descriptors: &[u8]) -> Vec<Method> {
    let set = FileDescriptorSet::decode(descriptors).expect("build scripts wrote the descriptors");
    let mut methods = Vec::new();
    for file in set.file {
        for service in &file.service {
            let whole = format!("{}.{}", file.package(), service.name());
            let named = service.method.iter().map(|method| method.name().to_string());
            methods.extend(named.map(|name| Method { service: whole.clone(), name }));
        }
    }
    methods
}

/// Rejects a rule that no method of any service matches.
pub fn check(rule: &Rule) -> Result<(), String> {
    let covers = |method: &Method| {
        rule.covers(MethodPath { service: &method.service, method: &method.name })
    };
    if METHODS.iter().any(covers) {
        return Ok(());
    }
    let hint = match similar(rule.method().unwrap_or_default()) {
        Some(Method { service, name }) => {
            let service = service.rsplit('.').next().unwrap_or_default();
            format!("did you mean {service}/{name}?")
        }
        None => "methods are named as in the API, for instance ReadRows or KV/Put".into(),
    };
    Err(format!("invalid rule {:?}: no service has such a method; {hint}", rule.to_string()))
}

/// Returns the first method whose name differs only in case, or in missing or extra
/// letters at its end.
fn similar(name: &str) -> Option<&'static Method> {
    let name = name.to_ascii_lowercase();
    let is_similar = |method: &&Method| {
        let known = method.name.to_ascii_lowercase();
        known.starts_with(&name) || name.starts_with(&known)
    };
    METHODS.iter().find(is_similar).filter(|_| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_all_services_are_known() {
        for text in [
            "*",
            "Bigtable/*",
            "ReadRows",
            "CreateTable",
            "BigtableTableAdmin/DropRowRange",
            "BigtableInstanceAdmin/ListInstances",
            "google.longrunning.Operations/GetOperation",
            "Catalogues/Get",
            "Mounttable/Resolve",
            "TabletAdmin/SplitTablet",
            "etcdserverpb.KV/Put",
            "Metastore/*",
            "Health/Check",
        ] {
            check(&format!("{text}:latency=1ms").parse().unwrap()).unwrap();
        }
    }

    #[test]
    fn a_method_that_does_not_exist_is_refused_with_one_that_does() {
        for (text, hint) in [
            ("ReadRow", "did you mean Bigtable/ReadRows?"),
            ("readrows", "did you mean Bigtable/ReadRows?"),
            ("KV/ReadRows", "did you mean Bigtable/ReadRows?"),
            ("Nothing", "for instance ReadRows"),
            ("Nowhere/*", "for instance ReadRows"),
        ] {
            let refused = check(&format!("{text}:latency=1ms").parse().unwrap()).unwrap_err();
            assert!(refused.contains(hint) && refused.contains(text), "{refused}");
        }
    }
}
