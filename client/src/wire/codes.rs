//! On a request's way: the numbers both ends of the socket agree on for frame kinds, reasons, causes and refusals.

/// Defines an open enumeration: named codes, and `Unknown` for every number a later version may add.
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $code:literal $word:literal $meaning:literal,)+ }) => {
        $(#[$meta])*
        ///
        /// Build it with `from_code`, which yields `Unknown` only for numbers without a name here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[doc = $meaning] $variant,)+
            /// A number this version has no name for; 0 never gets one.
            Unknown(u16),
        }

        impl $name {
            /// Every code this version names, in ascending order.
            pub const KNOWN: &'static [Self] = &[$(Self::$variant),+];

            /// The value of this number; never fails.
            pub const fn from_code(code: u16) -> Self {
                match code {
                    $($code => Self::$variant,)+
                    other => Self::Unknown(other),
                }
            }

            /// The number on the wire.
            pub const fn code(self) -> u16 {
                match self {
                    $(Self::$variant => $code,)+
                    Self::Unknown(code) => code,
                }
            }

            /// The stable word for logs and tables; `unknown` for a number without one.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Unknown(_) => "unknown",
                }
            }

            /// What it means, in a few words.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)+
                    Self::Unknown(_) => "not known to this version of the protocol",
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    Self::Unknown(code) => write!(f, "unknown ({code})"),
                    known => f.write_str(known.word()),
                }
            }
        }
    };
}

codes! {
    /// What a frame is: 1 to 31 travel from client to daemon, 128 and above from daemon to client.
    Kind {
        Hello = 1 "HELLO" "opens the connection",
        Register = 2 "REGISTER" "asks for a stream",
        Unregister = 3 "UNREGISTER" "gives a stream up",
        Submit = 4 "SUBMIT" "one request",
        Subscribe = 5 "SUBSCRIBE" "chooses the events to be told",
        Status = 6 "STATUS" "asks for the daemon's state",
        Ping = 7 "PING" "asks for a PONG",
        Arena = 8 "ARENA" "hands over shared memory for requests and answers",
        SubmitShared = 9 "SUBMIT_SHARED" "one request whose tensors lie in the arena",
        Alarm = 10 "ALARM" "asks for an eventfd that counts changes of safe mode and suspensions",
        SubmitAt = 11 "SUBMIT_AT" "one request, with the instant at which it was sent",
        SubmitSharedAt = 12 "SUBMIT_SHARED_AT" "the same, for tensors that lie in the arena",
        SubmitOf = 13 "SUBMIT_OF" "one request of a class, with the instant at which it was sent",
        SubmitSharedOf = 14 "SUBMIT_SHARED_OF" "the same, for tensors that lie in the arena",
        Welcome = 128 "WELCOME" "answers HELLO",
        Registered = 129 "REGISTERED" "answers REGISTER: the stream and its promise",
        Unregistered = 130 "UNREGISTERED" "answers UNREGISTER",
        Result = 131 "RESULT" "answers a request: the output, in time",
        Miss = 132 "MISS" "answers a request: no output in time, and why",
        Subscribed = 133 "SUBSCRIBED" "answers SUBSCRIBE",
        StatusReply = 134 "STATUS_REPLY" "answers STATUS",
        Pong = 135 "PONG" "answers PING",
        Refused = 136 "REFUSED" "answers a request that is not granted",
        Error = 137 "ERROR" "last frame before the daemon closes the connection",
        Mapped = 138 "MAPPED" "answers ARENA: it can be used",
        Alarmed = 139 "ALARMED" "answers ALARM: the eventfd comes with it",
        ResultLate = 140 "RESULT_LATE" "answers a request of a class whose late answers are worth something: the output, late",
        EventSafeMode = 160 "EVENT_SAFE_MODE" "a service entered or left safe mode",
        EventMissesLeft = 161 "EVENT_MISSES_LEFT" "a stream has few misses left",
        EventsLost = 162 "EVENTS_LOST" "events dropped because the client read too slowly",
        EventSuspension = 163 "EVENT_SUSPENSION" "the promise to one stream is suspended, or holds again",
    }
}

codes! {
    /// What the elements of a tensor are; little-endian.
    DataType {
        F32 = 1 "f32" "IEEE 754 binary32",
        F16 = 2 "f16" "IEEE 754 binary16",
        I64 = 3 "i64" "signed, 64 bits",
        U8 = 4 "u8" "unsigned, 8 bits",
        F64 = 5 "f64" "IEEE 754 binary64",
        I8 = 6 "i8" "signed, 8 bits",
        I32 = 7 "i32" "signed, 32 bits",
        Bool = 8 "bool" "one byte: 0 is false, any other true; 1 in an output",
    }
}

codes! {
    /// Why a request got no output in time.
    MissReason {
        Unmeetable = 1 "unmeetable" "the deadline could not be met when the request arrived",
        Expired = 2 "expired" "waited too long and was never executed",
        Shed = 3 "shed" "dropped to spread the misses in overload",
        QueueFull = 4 "queue-full" "the queue had no place left",
        Late = 5 "late" "executed, but not finished by the deadline",
        EngineFailed = 6 "engine-failed" "the engine returned an error or panicked",
        WorkerLost = 7 "worker-lost" "the worker stopped answering while it held the request",
        Cancelled = 8 "cancelled" "its stream was given up, or a reload took over",
    }
}

codes! {
    /// Why the daemon did not grant a request.
    RefusalCode {
        UnknownService = 1 "unknown-service" "no service has this name",
        InvalidConstraint = 2 "invalid-constraint" "a constraint has no meaning or contradicts another",
        InvalidArrivals = 3 "invalid-arrivals" "an arrival bound is missing or has no meaning",
        NotAdmissible = 4 "not-admissible" "the promise cannot be kept beside those already given",
        TooManyStreams = 5 "too-many-streams" "every place for a stream is taken",
        NameInUse = 6 "name-in-use" "another stream holds this name",
        UnknownStream = 7 "unknown-stream" "this connection holds no stream of this number",
        Draining = 8 "draining" "the daemon is about to stop and takes nothing new",
        NotPermitted = 9 "not-permitted" "this user may not do this",
        InputLength = 10 "input-length" "the payload has not the length of the input tensors",
        Arena = 11 "arena" "this memory cannot be shared",
        ArenaPlace = 12 "arena-place" "a place that is not within the arena, or not a multiple of 8",
        OutputLength = 13 "output-length" "the output does not fit a frame: share an arena",
        Alarm = 14 "alarm" "no eventfd: there is one already, or nothing for it to count",
        TooManyQuestions = 15 "too-many-questions" "STATUS, PING or SUBSCRIBE more often than one connection may",
        SentInFuture = 16 "sent-in-future" "the request says that it was sent later than now",
        UnknownClass = 17 "unknown-class" "the service has no class of this name or number",
    }
}

codes! {
    /// Why the daemon is about to close the connection.
    ErrorCode {
        Version = 1 "version" "no version of the protocol is known to both ends",
        Malformed = 2 "malformed" "a frame does not follow the protocol",
        TooLarge = 3 "too-large" "a frame is longer than the limit told in WELCOME",
        NotPermitted = 4 "not-permitted" "this user may not connect",
        TooManyClients = 5 "too-many-clients" "every place for a client is taken",
        TooSlow = 6 "too-slow" "the client does not read its answers",
        ProtocolOrder = 7 "protocol-order" "a frame that has no place at this point",
    }
}

codes! {
    /// Whether the assumptions behind a service's promises hold.
    SafeModeState {
        Normal = 1 "normal" "the promises hold",
        Warning = 2 "warning" "the promises in force hold, and little is missing until they do not",
        SafeMode = 3 "safe-mode" "an assumption broke: the promises are suspended",
        Lost = 4 "lost" "no worker is left: nothing is answered",
    }
}

codes! {
    /// Whether the promise to one stream holds, as far as the stream itself is concerned.
    StreamState {
        Normal = 1 "normal" "the promise to the stream holds while those of its service do",
        Suspended = 2 "suspended" "the stream broke what it declared: its promise is suspended",
        Degraded1 = 3 "degraded-1" "the first of the weaker promises behind its own is in force",
        Degraded2 = 4 "degraded-2" "the second is",
        Degraded3 = 5 "degraded-3" "the third is",
        Degraded4 = 6 "degraded-4" "the fourth is",
    }
}

codes! {
    /// Which assumption broke; `Unknown(0)` where the daemon cannot tell.
    SafeModeCause {
        ArrivalExcess = 1 "arrival-excess" "more requests arrived than a stream declared",
        ServiceOverrun = 2 "service-overrun" "a batch ran longer than its profile allows",
        LateDispatch = 3 "late-dispatch" "a batch started later than its latest start",
        WorkerLost = 4 "worker-lost" "a worker stopped answering",
        ConstraintViolated = 5 "constraint-violated" "a stream missed more than its constraint allows",
        ProfileStale = 6 "profile-stale" "the machine is not as it was when it was profiled",
        Operator = 7 "operator" "asked for by the operator",
        MissesLow = 8 "misses-low" "a warning: a stream has one miss left, or none",
        RateHigh = 9 "rate-high" "a warning: more arrives than nine tenths of the certified rate",
        FanOutExcess = 10 "fan-out-excess" "a result became more requests of a stage than declared",
    }
}

impl SafeModeState {
    /// Whether the promises are suspended; so they are in any worse state that a later version may name.
    pub const fn is_suspended(self) -> bool {
        self.code() >= Self::SafeMode.code()
    }
}

impl StreamState {
    /// Whether nothing is promised; so it is in any state that a later version may name.
    pub const fn is_suspended(self) -> bool {
        !matches!(self.code(), 1 | 3..=6)
    }

    /// Which promise is in force: 0 for the stream's own, from 1 on the weaker ones behind it; `None` while nothing is promised.
    pub const fn level(self) -> Option<u8> {
        match self.code() {
            1 => Some(0),
            code @ 3..=6 => Some(code as u8 - 2),
            _ => None,
        }
    }

    /// The state in which that promise is in force; `Unknown(0)` of a level that there is not.
    pub const fn of_level(level: u8) -> Self {
        match level {
            0 => Self::Normal,
            1..=4 => Self::from_code(level as u16 + 2),
            _ => Self::Unknown(0),
        }
    }
}

impl DataType {
    /// Bytes of one element; `None` where this version does not know the type.
    pub const fn size(self) -> Option<usize> {
        match self {
            Self::F64 | Self::I64 => Some(8),
            Self::F32 | Self::I32 => Some(4),
            Self::F16 => Some(2),
            Self::I8 | Self::U8 | Self::Bool => Some(1),
            Self::Unknown(_) => None,
        }
    }
}

impl Kind {
    /// Whether frames of this kind travel from client to daemon (1 to 31).
    pub const fn is_from_client(self) -> bool {
        matches!(self.code(), 1..=31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_survives_the_way_through_its_enum() {
        for code in 0..=u16::MAX {
            assert_eq!(Kind::from_code(code).code(), code);
            assert_eq!(DataType::from_code(code).code(), code);
            assert_eq!(MissReason::from_code(code).code(), code);
            assert_eq!(RefusalCode::from_code(code).code(), code);
            assert_eq!(ErrorCode::from_code(code).code(), code);
            assert_eq!(SafeModeState::from_code(code).code(), code);
            assert_eq!(StreamState::from_code(code).code(), code);
            assert_eq!(SafeModeCause::from_code(code).code(), code);
        }
    }

    #[test]
    fn zero_is_unknown_everywhere() {
        assert_eq!(Kind::from_code(0), Kind::Unknown(0));
        assert_eq!(MissReason::from_code(0), MissReason::Unknown(0));
        assert_eq!(SafeModeCause::from_code(0).to_string(), "unknown (0)");
    }
}
