//! `stele serve`: one process that serves a store.
//!
//! Startup (`process`): flags, environment and file are resolved (`settings`), the ports
//! are bound (`listen`), and the store is opened (`data_dir`) on a disk that notifies the
//! runtime before it blocks (`disk`), with its files in an `object_store` if one is given. Once connections are accepted (`server`,
//! `connections`), the `banner` is printed. A call: its bytes are charged to the request
//! memory as they arrive (`request`), it is counted and bounded (`call`, `limits`,
//! `metrics`), is allowed or refused (`auth`), and one of the `services` answers it (`definitions` changes locality groups); some only to an `operator`. Shutdown
//! (`shutdown`): calls finish and the store is closed. People see the state of the server
//! in the `console` and on plain pages (`http`); every port describes all (`ports_page`). Expired backups and deleted tables are
//! removed in the background (`expiry`), and schemas are checked (`schema_check`).

mod auth;
mod banner;
mod call;
pub mod cluster;
mod connections;
mod console;
mod data_dir;
mod definitions;
mod disk;
pub mod emulator;
mod expiry;
mod gather;
mod health;
mod http;
pub mod inject;
mod json_call;
mod limits;
mod listen;
mod logs;
mod metastore;
pub mod metastore_only;
mod metrics;
mod min_rate;
mod monitored_io;
pub mod names;
mod native_rules;
mod object_store;
mod operator;
mod outgoing;
mod peers;
mod ports_page;
mod process;
mod request;
mod resident;
mod schema_check;
mod server;
mod services;
mod settings;
mod shares;
mod shutdown;
mod sites;
mod status;
mod stream;
mod timeouts;
mod tls;
mod upload;

pub use self::metastore::DIR as METASTORE_DIR;
pub use self::object_store::{CACHE_DIR, FILE as OBJECT_STORE_FILE, open_to_read};
pub use self::process::run;
pub use self::settings::{ClusterId, Flags, Size};
pub use self::sites::Sites;
