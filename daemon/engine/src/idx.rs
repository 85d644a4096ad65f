//! IDX files, the format of MNIST: pictures and labels that requests are made of and answers are judged by.

/// Unsigned bytes in three dimensions: count, rows, columns.
const PICTURES: usize = 0x0803;
/// Unsigned bytes in one dimension: count.
const LABELS: usize = 0x0801;

/// The pictures of an IDX file, as bytes.
pub struct Pictures<'a> {
    pub count: usize,
    pub rows: usize,
    pub columns: usize,
    pixels: &'a [u8],
}

/// In what bytes differ from an IDX file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {found}, {expected} is needed")]
pub struct IdxError {
    pub what: &'static str,
    pub expected: usize,
    pub found: usize,
}

impl<'a> Pictures<'a> {
    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// If they are no pictures, or more or fewer than the header says, or pictures of nothing: of those a header alone
    /// could announce four billion.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, IdxError> {
        let ([count, rows, columns], pixels) = parse(bytes, PICTURES)?;
        if count > 0 && pixels.is_empty() {
            return Err(IdxError { what: "the size of a picture", expected: 1, found: 0 });
        }
        Ok(Self { count, rows, columns, pixels })
    }

    /// Picture `index` row by row, every pixel in 0.0..=1.0; `None` if there are fewer.
    pub fn get(&self, index: usize) -> Option<Vec<f32>> {
        let size = self.rows * self.columns;
        let picture = self.pixels.get(index.checked_mul(size)?..)?.get(..size)?;
        (index < self.count).then(|| picture.iter().map(|&pixel| f32::from(pixel) / 255.0).collect())
    }

    /// All pictures in order.
    pub fn iter(&self) -> impl Iterator<Item = Vec<f32>> {
        (0..self.count).filter_map(|index| self.get(index))
    }
}

/// The labels of an IDX file.
///
/// # Errors
/// If the bytes are no labels, or more or fewer than the header says.
pub fn labels(bytes: &[u8]) -> Result<&[u8], IdxError> {
    parse::<1>(bytes, LABELS).map(|(_, labels)| labels)
}

/// The dimensions and the data of an IDX file of `D` dimensions.
fn parse<const D: usize>(bytes: &[u8], magic: usize) -> Result<([usize; D], &[u8]), IdxError> {
    let check = |what, expected, found| {
        if expected == found { Ok(()) } else { Err(IdxError { what, expected, found }) }
    };
    let header = 4 * (1 + D);
    if bytes.len() < header {
        check("the file's length", header, bytes.len())?;
    }
    let number = |i: usize| bytes[4 * i..][..4].iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
    check("the magic number", magic, number(0))?;
    let dims: [usize; D] = std::array::from_fn(|i| number(1 + i));
    let data = &bytes[header..];
    let product = dims.iter().fold(1usize, |product, &dim| product.saturating_mul(dim));
    check("the data's length", product, data.len())?;
    Ok((dims, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[u8] = &[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 255, 51, 0];

    #[test]
    fn pictures_and_labels_are_read() {
        let pictures = Pictures::parse(TWO).unwrap();
        assert_eq!(pictures.iter().collect::<Vec<_>>(), [vec![0.0, 1.0], vec![0.2, 0.0]]);
        assert_eq!(pictures.get(2), None);
        assert_eq!(labels(&[0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), Ok(&[7, 9][..]));
    }

    #[test]
    fn other_bytes_are_refused_by_what_is_wrong() {
        let told = |bytes: &[u8]| Pictures::parse(bytes).err().unwrap().to_string();
        assert_eq!(told(&TWO[..7]), "the file's length is 7, 16 is needed");
        assert_eq!(told(&TWO[..19]), "the data's length is 3, 4 is needed");
        let nothing = [&TWO[..4], &[0xff; 4], &[0; 4], &[0xff; 4]].concat();
        assert_eq!(told(&nothing), "the size of a picture is 0, 1 is needed");
        assert!(labels(TWO).unwrap_err().to_string().contains("the magic number is 2051, 2049"));
    }
}
