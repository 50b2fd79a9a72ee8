//! The protocol of the socket: lines of JSON.

use std::{borrow::Cow, time::Duration};

use data_encoding::BASE64;
use pando_vfs::trace::{Event, TraceOp, TraceOptions};
use serde::{Deserialize, Serialize};

use super::PathFilter;

/// The version of the request and of the lines. New fields may be added without a new version.
pub const VERSION: u32 = 1;

/// The request of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRequest {
    /// [`VERSION`].
    pub pando_trace: u32,
    /// The names of operations. Empty: all operations.
    #[serde(default)]
    pub ops: Vec<String>,
    /// Only operations that fail.
    #[serde(default)]
    pub errors_only: bool,
    /// Only operations that take at least this long.
    #[serde(default)]
    pub min_latency_ns: u64,
    /// Only these paths: see [`PathFilter::parse`].
    #[serde(default)]
    pub path: Option<String>,
}

impl TraceRequest {
    /// The options that it asks for; or a message about its mistake.
    pub(super) fn parse(&self) -> Result<(TraceOptions, Option<PathFilter>), String> {
        if self.pando_trace != VERSION {
            return Err(format!("this server speaks version {VERSION}, not {}", self.pando_trace));
        }
        let ops: Result<Vec<TraceOp>, String> = self.ops.iter().map(|name| name.parse()).collect();
        let mut options = TraceOptions {
            errors_only: self.errors_only,
            min_latency: Duration::from_nanos(self.min_latency_ns),
            ..TraceOptions::default()
        };
        if !self.ops.is_empty() {
            options.ops = ops?.into_iter().collect();
        }
        Ok((options, self.path.as_deref().map(PathFilter::parse).transpose()?))
    }
}

/// A line that the server sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TraceLine {
    /// The trace has begun.
    Greeting {
        /// [`VERSION`].
        pando_trace: u32,
        /// The process of the server.
        pid: u32,
    },
    /// There is no trace.
    Refusal {
        /// The reason.
        refused: String,
    },
    /// Events were lost.
    Lost {
        /// How many operations, since the trace began.
        lost: u64,
    },
    /// An operation.
    Event(TraceEvent),
}

/// One operation. Paths that are not UTF-8 are under another key, as base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// The start of the operation, in time since the start of the trace.
    pub start_ns: u64,
    /// The duration.
    pub latency_ns: u64,
    /// The thread of the server.
    pub thread: u32,
    /// The operation: a name of [`TraceOp`].
    pub op: Cow<'static, str>,
    /// 0, or the error.
    pub errno: i32,
    /// The path of the file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path: Option<String>,
    /// The same, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path_base64: Option<String>,
    /// The new path of a rename or a link, the target of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub to: Option<String>,
    /// The same, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub to_base64: Option<String>,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The bytes as text, or as base64 if they are not UTF-8.
fn keys(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(BASE64.encode(bytes))),
    }
}

fn bytes(text: Option<&String>, base64: Option<&String>) -> Option<Vec<u8>> {
    text.map(|text| text.clone().into_bytes()).or_else(|| BASE64.decode(base64?.as_bytes()).ok())
}

impl TraceEvent {
    /// The path as bytes.
    #[must_use]
    pub fn path_bytes(&self) -> Vec<u8> {
        bytes(self.path.as_ref(), self.path_base64.as_ref()).unwrap_or_default()
    }

    /// The second path as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        bytes(self.to.as_ref(), self.to_base64.as_ref())
    }
}

impl From<&Event> for TraceEvent {
    fn from(event: &Event) -> Self {
        let (path, path_base64) = keys(&event.path);
        let (to, to_base64) = event.second.as_deref().map_or((None, None), keys);
        Self {
            start_ns: nanos(event.start),
            latency_ns: nanos(event.latency),
            thread: event.thread,
            op: event.op.name().into(),
            errno: event.error.map_or(0, pando_vfs::Error::errno),
            path,
            path_base64,
            to,
            to_base64,
        }
    }
}

#[cfg(test)]
mod tests;
