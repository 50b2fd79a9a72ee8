//! A server before a slow store, or one that counts: requests go through here on their way in and out.

use std::{sync::Arc, time::Instant};

use pando_vfs::Result;

use super::{Attr, Server};
use crate::store::{Operation, ReadAt, Store, Work};

/// An extended attribute that every inode of a mount with a [`Store`] answers, though it is not in the tree nor in its
/// lists: [`Report::to_json`](crate::Report::to_json), what was asked of the mount until now. Asking for it is not
/// counted.
pub const REQUESTS_XATTR: &str = "system.pandofs.requests";

impl Server {
    /// The same server before `store`.
    #[must_use]
    pub fn with_store(self, store: Arc<Store>) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Runs one request of a kind that the store can fail; `name` is that of a look-up. [`Server::due`] must follow.
    pub(crate) fn asked<T>(
        &self,
        operation: Operation,
        name: Option<&[u8]>,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Some(store) = &self.store else { return run() };
        store.counts().begin();
        // The store reads a directory in one way only.
        let of_store = if operation == Operation::Readdirplus { Operation::Readdir } else { operation };
        match store.fault(of_store, name) {
            Some(error) => {
                // It does not get as far as the tree, where the others are counted.
                store.counts().request(operation);
                Err(error)
            }
            None => run(),
        }
    }

    /// Until when the answer to a request that was [asked](Server::asked) has to wait for the store to do `work`; none where
    /// that takes no time. What waits is sent by [`Server::send_at`].
    pub(crate) fn due(&self, work: Work) -> Option<Instant> {
        let store = self.store.as_ref()?;
        if let Work::Names(count) | Work::NamesWithAttributes(count) = work {
            store.counts().entries(count);
        }
        let due = store.due(work, Instant::now);
        if due.is_none() {
            // Before the answer: whoever has it may ask for the counts.
            store.counts().end();
        }
        due
    }

    /// Sends an answer at the instant `due`.
    pub(crate) fn send_at(&self, due: Instant, send: impl FnOnce() + Send + 'static) {
        let Some(store) = &self.store else { return send() };
        let theirs = Arc::clone(store);
        store.at(due, move || {
            theirs.counts().end();
            send();
        });
    }

    /// A read as the store sees it; none where it does not look at reads.
    pub(crate) fn read_at(&self, node: u64, handle: u64, offset: u64, len: usize) -> Option<ReadAt> {
        self.store.as_ref().filter(|store| store.wants_reads())?;
        let file_size = self.with_file(handle, |file| Ok(self.vfs.getattr(file.dentry()).size)).unwrap_or(0);
        Some(ReadAt { node, offset, len: len as u64, file_size })
    }

    /// Whether answers may have to wait.
    pub(crate) fn is_slow(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.delays())
    }

    /// Whether the attributes of an entry of a directory cannot be had: the store fails.
    pub(crate) fn entry_fails(&self, name: &[u8]) -> bool {
        self.store.as_ref().is_some_and(|store| store.fault_of_entry(name).is_some())
    }

    /// The entry of which that was asked did not fit.
    pub(crate) fn entry_did_not_fit(&self) {
        if let Some(store) = &self.store {
            store.entry_did_not_fit();
        }
    }

    /// Whether attributes have been overtaken, to be asked when an answer that has waited is sent; none if nobody knows the
    /// inode any more.
    pub(crate) fn overtaken(&self, attr: &Attr) -> Option<impl FnOnce() -> bool + Send + use<>> {
        let (stat, dentry) = (attr.stat, self.nodes.get(attr.node).ok()?);
        Some(move || dentry.stat() != stat)
    }

    pub(super) fn count(&self, operation: &str) {
        if let Some(store) = &self.store
            && let Some(operation) = Operation::named(operation)
        {
            store.counts().request(operation);
        }
    }
}
