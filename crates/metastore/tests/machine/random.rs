//! Odd proposals: nothing that is proposed stops a member.
