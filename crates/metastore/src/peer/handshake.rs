//! The first bytes of a connection: who connects to whom, in which cluster.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const MAGIC: &[u8; 8] = b"STELEPR1";
const HELLO_BYTES: usize = 8 + 3 * 8;
const TEXT_BYTES_MAX: usize = 4096;

/// What the connecting side says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub cluster: u64,
    pub from: u64,
    pub to: u64,
}

impl Hello {
    /// What a member says that joins and does not know any id yet.
    pub const JOINING: Hello = Hello { cluster: 0, from: 0, to: 0 };

    pub fn is_joining(&self) -> bool {
        *self == Hello::JOINING
    }
}

/// Sends the ids of the cluster and of this member to one that joins.
pub async fn send_ids<S: AsyncWrite + Unpin>(
    stream: &mut S,
    cluster: u64,
    member: u64,
) -> io::Result<()> {
    stream.write_u64_le(cluster).await?;
    stream.write_u64_le(member).await?;
    stream.flush().await
}

/// Reads the ids of the cluster and of the member that was reached.
pub async fn read_ids<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<(u64, u64)> {
    Ok((stream.read_u64_le().await?, stream.read_u64_le().await?))
}

/// Introduces this side. Fails with the reason if the other refuses.
pub async fn introduce<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    hello: Hello,
) -> io::Result<()> {
    let mut bytes = [0; HELLO_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    for (at, number) in [hello.cluster, hello.from, hello.to].into_iter().enumerate() {
        bytes[8 + 8 * at..16 + 8 * at].copy_from_slice(&number.to_le_bytes());
    }
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    let length = usize::from(stream.read_u16_le().await?);
    if length == 0 {
        return Ok(());
    }
    let mut refusal = vec![0; length.min(TEXT_BYTES_MAX)];
    stream.read_exact(&mut refusal).await?;
    let refusal = String::from_utf8_lossy(&refusal).into_owned();
    Err(io::Error::new(io::ErrorKind::PermissionDenied, refusal))
}

/// Reads the introduction of the other side.
pub async fn read_hello<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Hello> {
    let mut bytes = [0; HELLO_BYTES];
    stream.read_exact(&mut bytes).await?;
    if &bytes[..8] != MAGIC {
        let what = "the connection does not come from a member";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let number = |at: usize| {
        let bytes = &bytes[8 + 8 * at..16 + 8 * at];
        u64::from_le_bytes(bytes.try_into().expect("the slice has eight bytes"))
    };
    Ok(Hello { cluster: number(0), from: number(1), to: number(2) })
}

/// Accepts the other side, or refuses it with a reason.
pub async fn reply<S: AsyncWrite + Unpin>(stream: &mut S, refusal: Option<&str>) -> io::Result<()> {
    let refusal = refusal.unwrap_or_default();
    let refusal = &refusal.as_bytes()[..refusal.len().min(TEXT_BYTES_MAX)];
    stream.write_u16_le(u16::try_from(refusal.len()).expect("the text is short")).await?;
    stream.write_all(refusal).await?;
    stream.flush().await
}
