//! The slots of a cluster.

/// The slot of a key whose name is one hash tag, as `{prefix:policy:key}` is.
pub(super) fn slot_of(key: &str) -> u16 {
    let tag = key.strip_prefix('{').and_then(|rest| rest.split_once('}'));
    let tag = tag.map_or(key, |(tag, _)| tag);
    // CRC-16/XMODEM
    let crc = tag.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            crc << 1 ^ if crc >> 15 == 1 { 0x1021 } else { 0 }
        })
    });
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("{foo}"), 12_182);
        assert_eq!(slot_of("{foo}:1"), 12_182);
    }
}
