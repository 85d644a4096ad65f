//! Small problems made of any bytes, most of them near the limit of what can be promised.

/// Takes numbers off the input; zeros when it is used up.
struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    /// In `low..=high`.
    fn number(&mut self, low: u64, high: u64) -> u64 {
        low + u64::from(self.0.next().copied().unwrap_or(0)) % (high - low + 1)
    }

    /// Of a wide range: some are small, some share no factor with anything.
    fn length(&mut self) -> u64 {
        match self.number(0, 7) {
            0 => 1 + self.number(0, 255) * 256 + self.number(0, 255),
            1 => self.number(1, 255),
            _ => self.number(1, 9),
        }
    }

    fn list(&mut self, least: u64, most: u64, one: impl Fn(&mut Self) -> String) -> String {
        let count = self.number(least, most);
        (0..count).map(|_| one(self)).collect::<Vec<_>>().join(",")
    }

    /// Numbers that never fall.
    fn rising(&mut self, first: u64, count: u64, step: u64) -> String {
        let mut at = first;
        let next = |_| {
            at += self.number(0, step);
            at.to_string()
        };
        (0..count).map(next).collect::<Vec<_>>().join(",")
    }
}

/// A problem as text; not every one is within all limits.
#[must_use]
pub fn small_problem(data: &[u8]) -> String {
    let mut bytes = Bytes(data.iter());
    let unit = ["ns", "us", "ms"][bytes.number(0, 2) as usize];
    let (deadline, guard) = (bytes.number(2, 30), bytes.number(0, 6).saturating_sub(3));
    let dispatch = ["eager", "full-or-latest"][bytes.number(0, 1) as usize];
    let background = bytes.number(0, 1) == 1;
    let kinds = bytes.number(0, 3).max(2) - 1;
    let workers = bytes.list(kinds, kinds, |bytes| {
        let (count, batch, first) = (bytes.number(1, 2), bytes.number(1, 3), bytes.number(1, 6));
        format!(r#"{{"count":{count},"batch":{batch},"times":[{}]}}"#, bytes.rising(first, batch, 2))
    });
    let count = bytes.number(1, 3);
    let streams: Vec<_> = (0..count).map(|i| stream(&mut bytes, i)).collect();
    format!(
        r#"{{"unit":"{unit}","deadline":{deadline},"guard":{guard},"dispatch":"{dispatch}","background":{background},"#
    ) + &format!(r#""workers":[{workers}],"streams":[{}]}}"#, streams.join(","))
}

/// A problem of two or three services on the same workers as text; not every one is within all limits.
#[must_use]
pub fn small_sharing(data: &[u8]) -> String {
    let mut bytes = Bytes(data.iter());
    let (unit, workers) = (["ns", "us", "ms"][bytes.number(0, 2) as usize], bytes.number(1, 2));
    let rule = ["auto", "edf", "turns", "patience"][bytes.number(0, 6).saturating_sub(3) as usize];
    let count = bytes.number(2, 3);
    let services: Vec<_> = (0..count).map(|i| service(&mut bytes, i)).collect();
    format!(
        r#"{{"unit":"{unit}","background":true,"workers":{{"count":{workers}}},"rule":"{rule}","services":[{}]}}"#,
        services.join(",")
    )
}

fn service(bytes: &mut Bytes<'_>, i: u64) -> String {
    let (batch, first, guard) = (bytes.number(1, 3), bytes.number(1, 4), bytes.number(0, 2));
    let times = bytes.rising(first, batch, 1);
    let deadline = first + batch + guard + bytes.length() % 64;
    let turn = match bytes.number(0, 3) {
        0 => String::new(),
        turn => format!(r#""turn":{turn},"#),
    };
    let streams: Vec<_> = (0..bytes.number(1, 2)).map(|i| shared_stream(bytes, i)).collect();
    format!(
        r#"{{"name":"v{i}","deadline":{deadline},"guard":{guard},"batch":{batch},"times":[{times}],{turn}"streams":[{}]}}"#,
        streams.join(",")
    )
}

/// One of whom there are several: of one bound, so that most of them are within all limits together.
fn shared_stream(bytes: &mut Bytes<'_>, i: u64) -> String {
    let (misses, more) = (bytes.number(0, 2), bytes.number(0, 3));
    let constraint =
        if more == 0 { String::new() } else { format!(r#""any_miss({misses},{})""#, misses + more) };
    let (count, length) = (bytes.number(1, 3), 1 + bytes.length() + bytes.number(0, 40));
    let bound = match bytes.number(0, 3) {
        0 => format!(r#""windows":[[{count},{length}]]"#),
        1 => format!(r#""periodic":{{"period":{length},"jitter":{}}}"#, bytes.length() - 1),
        2 => format!(r#""token_bucket":{{"burst":{count},"period":{length}}}"#),
        _ => format!(r#""distances":[{}]"#, bytes.rising(length, count, 9)),
    };
    format!(r#"{{"name":"s{i}","constraints":[{constraint}],"arrivals":{{{bound}}}}}"#)
}

fn stream(bytes: &mut Bytes<'_>, i: u64) -> String {
    let constraints = bytes.list(0, 2, |bytes| {
        let (a, b) = (bytes.number(0, 3), bytes.number(1, 4));
        match bytes.number(0, 3) {
            0 => format!(r#""any_miss({a},{})""#, a + b),
            1 => format!(r#""any_hit({b},{})""#, a + b),
            2 => format!(r#""row_miss({a})""#),
            _ => format!(r#""row_hit({b},{})""#, 2 * a + b),
        }
    });
    if constraints.is_empty() && bytes.number(0, 1) == 0 {
        return format!(r#"{{"name":"s{i}"}}"#);
    }
    let kinds = bytes.number(1, 31);
    let bounds = (0..5).filter(|kind| kinds >> kind & 1 == 1).map(|kind| match kind {
        0 => {
            let list = bytes.list(1, 2, |bytes| format!("[{},{}]", bytes.number(1, 5), bytes.length()));
            format!(r#""windows":[{list}]"#)
        }
        1 => {
            let (period, jitter) = (bytes.length(), bytes.length() - 1);
            let least = bytes.number(0, 3).min(period);
            let least = if least == 0 { String::new() } else { format!(r#","distance":{least}"#) };
            format!(r#""periodic":{{"period":{period},"jitter":{jitter}{least}}}"#)
        }
        2 => format!(r#""token_bucket":{{"burst":{},"period":{}}}"#, bytes.number(1, 4), bytes.length()),
        3 => {
            let count = bytes.number(1, 6);
            format!(r#""distances":[{}]"#, bytes.rising(0, count, 9))
        }
        _ => {
            let (count, first) = (bytes.number(2, 9), bytes.number(0, 9));
            format!(r#""trace":[{}]"#, bytes.rising(first, count, 15))
        }
    });
    let bounds = bounds.collect::<Vec<_>>().join(",");
    format!(r#"{{"name":"s{i}","constraints":[{constraints}],"arrivals":{{{bounds}}}}}"#)
}
