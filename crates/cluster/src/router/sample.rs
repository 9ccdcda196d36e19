//! SampleRowKeys: the ends of tablets with the sizes of their files, as their rows have
//! them. No owner is asked.

use bytes::Bytes;
use prost::Message;
use stele_bigtable_proto::v2;
use stele_engine::RowRange;
use stele_grpc::MessageBody;
use stele_grpc::frame::{self, PREFIX_BYTES};
use tonic::Status;
use tonic::body::Body;

use super::call::Call;
use super::front::{Front, unreachable};
use super::row_ranges::to_range;
use crate::routes::RoutedTablet;

pub async fn answer(
    front: &Front,
    call: Call,
    frame: Bytes,
) -> Result<http::Response<Body>, Status> {
    let request = v2::SampleRowKeysRequest::decode(&frame[PREFIX_BYTES..]).ok();
    let range = request.as_ref().and_then(|request| match &request.row_range {
        None => Some(RowRange::all()),
        Some(range) => to_range(range),
    });
    let (Some(request), Some(range)) = (request, range) else {
        return Ok(front.here(&call, frame).await);
    };
    let names_view =
        !request.authorized_view_name.is_empty() || !request.materialized_view_name.is_empty();
    let table = front.table(&call, request.table_name.as_bytes()).await?;
    let Some(table) = table.filter(|_| !names_view) else {
        return Ok(front.here(&call, frame).await);
    };
    // Sizes change all the time: those of a moment ago will do.
    let routes = front.routes().table(table, None).await.map_err(|error| unreachable(&error))?;
    let samples = samples(routes.tablets(), &range);
    Ok(MessageBody::of(samples.into_iter().map(|sample| frame::encode(&sample))))
}

fn samples(tablets: &[RoutedTablet], range: &RowRange) -> Vec<v2::SampleRowKeysResponse> {
    let mut samples = Vec::new();
    let mut offset = 0_u64;
    for tablet in tablets.iter().filter(|tablet| tablet.rows.overlaps(range)) {
        offset = offset.saturating_add(tablet.bytes);
        let key = match (&tablet.rows.end, &range.end) {
            (Some(end), Some(last)) if end < last => end.clone(),
            (Some(end), None) => end.clone(),
            // The last one ends where the range does.
            (_, last) => last.clone().unwrap_or_default(),
        };
        samples.push(v2::SampleRowKeysResponse {
            row_key: key.into(),
            offset_bytes: i64::try_from(offset).unwrap_or(i64::MAX),
        });
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_sampled_at_the_ends_of_its_tablets() {
        let tablet = |rows| RoutedTablet { rows, owner: None, bytes: 10 };
        let tablets = [
            tablet(RowRange::new("", "d")),
            tablet(RowRange::new("d", "h")),
            tablet(RowRange::from("h")),
        ];
        let keys = |range: RowRange| -> Vec<(Vec<u8>, i64)> {
            let samples = samples(&tablets, &range);
            samples.into_iter().map(|it| (it.row_key.to_vec(), it.offset_bytes)).collect()
        };
        let expected = [(b"d".to_vec(), 10), (b"h".to_vec(), 20), (Vec::new(), 30)];
        assert_eq!(keys(RowRange::all()), expected);
        assert_eq!(keys(RowRange::new("e", "f")), [(b"f".to_vec(), 10)]);
        assert_eq!(keys(RowRange::new("e", "h")), [(b"h".to_vec(), 10)]);
    }
}
