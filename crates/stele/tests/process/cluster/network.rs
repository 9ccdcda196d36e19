//! A proxy in front of each member's port for other members. The first bytes of a
//! connection say who connects to whom, so that one member can be cut off in both
//! directions. Its connections then stay open and carry nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Magic, cluster, the member that connects and the one it wants, 8 bytes each.
const HELLO_BYTES: usize = 32;

/// The members that are cut off.
#[derive(Clone)]
pub struct Network(Arc<watch::Sender<BTreeSet<u64>>>);

impl Network {
    pub fn new() -> Network {
        Network(Arc::new(watch::Sender::default()))
    }

    pub fn cut_off(&self, member: u64) {
        self.0.send_modify(|cut| {
            cut.insert(member);
        });
    }

    pub fn heal(&self) {
        self.0.send_modify(BTreeSet::clear);
    }

    /// Passes connections on to a port of this machine.
    pub fn serve(&self, listener: TcpListener, port: u16) {
        let network = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(network.clone().pass(stream, port));
            }
        });
    }

    async fn pass(self, mut from: TcpStream, port: u16) -> std::io::Result<()> {
        let mut hello = [0; HELLO_BYTES];
        from.read_exact(&mut hello).await?;
        let member = |at: usize| u64::from_le_bytes(hello[at..at + 8].try_into().unwrap());
        let (connects, wanted) = (member(16), member(24));
        let is_cut = |cut: &BTreeSet<u64>| cut.contains(&connects) || cut.contains(&wanted);
        let mut cuts = self.0.subscribe();
        let passing = async {
            let mut to = TcpStream::connect(("127.0.0.1", port)).await?;
            to.set_nodelay(true)?;
            from.set_nodelay(true)?;
            to.write_all(&hello).await?;
            copy_bidirectional(&mut from, &mut to).await
        };
        tokio::select! {
            biased;
            cut = cuts.wait_for(is_cut) => drop(cut),
            passed = passing => return passed.map(drop),
        }
        // Both ends believe in the connection until it is closed.
        let _ = cuts.wait_for(|cut| !is_cut(cut)).await;
        Ok(())
    }
}
