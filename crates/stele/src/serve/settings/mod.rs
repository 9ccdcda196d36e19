//! The settings of `stele serve`, from flags, environment variables and a file
//! (`sources`). Flags override variables, variables override the file, and the file
//! overrides the defaults (`effective`). All three use the same names and the same syntax
//! of values (`values`).

mod effective;
mod sources;
mod values;

pub use effective::{Data, EffectiveSettings, StoreSettings, Tls};
pub use sources::{ClusterState, ConsoleMode, Flags, LogFormat, PartialSettings, Section};
pub use values::{ClusterId, Port, Size, TimeSpan};
