//! Names over DNS, for programs that support nothing else: a zone of the names in the
//! tree, read anonymously.
//!
//! `zone` converts between DNS names and node names, `answer` converts nodes to
//! records, and `sockets` receives queries and sends responses.

mod answer;
mod sockets;
mod zone;

pub use self::sockets::Sockets;
pub use self::zone::Zone;
