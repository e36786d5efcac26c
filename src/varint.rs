//! Numbers in as few bytes as they need: seven bits per byte, lowest first.

pub(crate) fn write(bytes: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push((number & 0x7f) as u8);
}

/// Takes a number from the front of `bytes`. `None` if there is none, or one above 128 bits.
pub(crate) fn read(bytes: &mut &[u8]) -> Option<u128> {
    let mut number = 0;
    for shift in (0..128).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let low = u128::from(byte & 0x7f);
        if low << shift >> shift != low {
            return None;
        }
        number |= low << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        let edges = (0..128).flat_map(|bit| [(1_u128 << bit) - 1, 1 << bit]);
        for number in edges.chain([u128::MAX]) {
            let mut bytes = Vec::new();
            write(&mut bytes, number);
            let bits = 128 - number.leading_zeros();
            assert_eq!(bytes.len(), bits.div_ceil(7).max(1) as usize);
            let mut rest = &bytes[..];
            assert_eq!((read(&mut rest), rest), (Some(number), &[][..]));
            assert_eq!(read(&mut &bytes[..bytes.len() - 1]), None, "cut");
        }
    }

    #[test]
    fn a_number_above_128_bits_is_refused() {
        let mut bytes = [0xff; 19];
        bytes[18] = 0x07;
        assert_eq!(read(&mut &bytes[..]), None);
        assert_eq!(read(&mut &[0xff; 30][..]), None);
    }
}
