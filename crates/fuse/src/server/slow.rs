//! A server before a slow store, or one that counts: requests go through here on their way in and out.

use std::{sync::Arc, time::Duration};

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

    /// Runs one request of a kind that the store can fail; `name` is that of a look-up. [`Server::answer`] must follow.
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

    /// Sends an answer when the store has done `work`: at once, where it takes no time.
    pub(crate) fn answer(&self, work: Work, send: impl FnOnce() + Send + 'static) {
        let Some(store) = &self.store else { return send() };
        if let Work::Names(count) | Work::NamesWithAttributes(count) = work {
            store.counts().entries(count);
        }
        let theirs = Arc::clone(store);
        store.answer(work, move || {
            // Before the answer: whoever has it may ask for the counts.
            theirs.counts().end();
            send();
        });
    }

    /// Ends a request whose answer never waits.
    pub(crate) fn answered(&self) {
        if let Some(store) = &self.store {
            store.counts().end();
        }
    }

    /// A read as the store sees it; none where it does not look at reads.
    pub(crate) fn read_at(&self, node: u64, handle: u64, offset: u64, len: usize) -> Option<ReadAt> {
        self.store.as_ref().filter(|store| store.wants_reads())?;
        let file_size = self.with_file(handle, |file| Ok(self.vfs.getattr(file.dentry()).size)).unwrap_or(0);
        Some(ReadAt { node, offset, len: len as u64, file_size })
    }

    /// Whether answers may have to wait.
    pub(crate) fn is_slow(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.wants_reads())
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

    /// How long attributes last, to be asked when an answer that may have waited is sent: no time, where they have been
    /// overtaken.
    pub(crate) fn lasting(&self, attr: Option<&Attr>) -> impl FnOnce() -> Duration + Send + use<> {
        let valid = self.options.valid;
        let asked = attr.filter(|_| self.is_slow()).and_then(|attr| Some((attr.stat, self.nodes.get(attr.node).ok()?)));
        move || if asked.is_none_or(|(stat, dentry)| dentry.stat() == stat) { valid } else { Duration::ZERO }
    }

    pub(super) fn count(&self, operation: &str) {
        if let Some(store) = &self.store
            && let Some(operation) = Operation::named(operation)
        {
            store.counts().request(operation);
        }
    }
}
