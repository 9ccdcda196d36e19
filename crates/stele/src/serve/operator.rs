//! Decides who may administer this server: clients on its machine, and clients with a
//! certificate of its client CA.

use std::net::SocketAddr;

use tonic::Status;

/// The services that only operators may call, and the methods among them that clients of
/// data call.
const GUARDED: &str = "/stele.tables.v1.";
const OPEN: [&str; 6] = ["Open", "Apply", "Sync", "Scan", "Get", "Close"];
const OPEN_SERVICE: &str = "/stele.tables.v1.Tables/";

/// Returns whether a client is on this machine.
pub fn is_local(client: SocketAddr) -> bool {
    client.ip().to_canonical().is_loopback()
}

/// Returns whether only operators may call the method with this path.
pub fn is_guarded(path: &str) -> bool {
    let of_data = path.strip_prefix(OPEN_SERVICE).is_some_and(|method| OPEN.contains(&method));
    path.starts_with(GUARDED) && !of_data
}

/// The response to a guarded call of anybody else.
pub fn refusal() -> Status {
    Status::permission_denied(
        "tablets can be administered only by clients on the machine of the server, and by \
         clients with a certificate of its client CA",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_local() {
        let local = |client: &str| is_local(client.parse().unwrap());
        assert!(local("127.0.0.1:1") && local("[::1]:1") && local("[::ffff:127.0.0.1]:1"));
        assert!(!local("10.0.0.1:1") && !local("[::2]:1") && !local("0.0.0.0:1"));
    }

    #[test]
    fn the_administration_of_tablets_is_guarded_and_data_is_not() {
        assert!(is_guarded(&format!("/{}/SplitTablet", stele_tables_api::proto::SERVICE)));
        assert!(!is_guarded("/google.bigtable.v2.Bigtable/ReadRows"));
        let native = |method: &str| format!("/{}/{method}", stele_tables_api::proto::DATA_SERVICE);
        assert!(OPEN.iter().all(|method| !is_guarded(&native(method))));
        for method in ["LoadTablets", "UnloadTablets", "ReloadSchema", "", "Opens", "Open/"] {
            assert!(is_guarded(&native(method)), "{method}");
        }
    }
}
