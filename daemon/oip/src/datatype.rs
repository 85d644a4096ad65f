//! The protocol's names of the types that tensors consist of.

use weir_client::wire::DataType;

const NAMES: [(DataType, &str); 8] = [
    (DataType::Bool, "BOOL"),
    (DataType::U8, "UINT8"),
    (DataType::I8, "INT8"),
    (DataType::I32, "INT32"),
    (DataType::I64, "INT64"),
    (DataType::F16, "FP16"),
    (DataType::F32, "FP32"),
    (DataType::F64, "FP64"),
];

/// The type of that name; `None` for one that no model of Weir has, as `BYTES`.
pub fn data_type(name: &str) -> Option<DataType> {
    NAMES.iter().find(|(_, known)| *known == name).map(|&(data_type, _)| data_type)
}

/// What the protocol calls a type.
pub fn name_of(data_type: DataType) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == data_type).map_or("BYTES", |&(_, name)| name)
}
