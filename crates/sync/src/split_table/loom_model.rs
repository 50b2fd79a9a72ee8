//! Models of [`SplitTable`].
