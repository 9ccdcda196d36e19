//! The server as clients meet it on the wire: frames that clients hide, and
//! kill -9 under load, after which every row must have a history that some
//! order of the calls explains.

mod calls;
mod frames;
mod killed;
mod linear;
mod row;
mod server;
