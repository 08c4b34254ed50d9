# Subscriptions by subject; see sublist.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.subjects cimport SubjectFilter


cdef struct Frame:
    # A message on its way, in the publisher's memory.
    const uint8_t* subject
    size_t subject_size
    const uint8_t* reply
    size_t reply_size
    # Headers and body lie together.
    const uint8_t* payload
    size_t payload_size
    size_t headers_size
    # The sizes as the publisher wrote them; NULL for a message of the server.
    const uint8_t* size_text
    size_t size_text_size
    const uint8_t* headers_text
    size_t headers_text_size


cdef class Receiver:
    # Whatever a subscription delivers to: a connection, or a part of the server.
    # True if it wants its own messages, too.
    cdef public bint echo
    # What services of other accounts are told of it as a publisher, by their door; None to have
    # them all made anew.
    cdef public dict introductions

    # Return 0 if it did not take the message; otherwise how, see TAKEN in hub.pxd.
    cdef int deliver(self, Subscription subscription, const Frame* frame) except -1
    # Send what was delivered; called for receivers in the hub's list `dirty`.
    cdef int send_gathered(self) except -1
    # Note how another receiver took what this one published.
    cdef int charge(self, int taken) except -1
    # The buffer whose messages it got has come to its end; for those in the hub's `finishing`.
    cdef int finish(self) except -1


cdef class Subscription:
    cdef readonly Receiver receiver
    cdef readonly bytes subject
    cdef readonly bytes queue
    cdef readonly bytes sid
    # Messages after which it ends by itself; 0 for never.
    cdef public int64_t max_messages
    cdef public int64_t delivered
    cdef public bint closed
    # Subjects that are not delivered although the subscription matches them.
    cdef public SubjectFilter deny


cdef class Matches:
    # The subscriptions of one literal subject: plain ones, and a list for each queue group.
    cdef readonly list plain
    cdef readonly list queues
    # The key of its slot: the subject, what is before its last token, or its first tokens.
    cdef bytes subject
    cdef bint is_any_last
    # So many first tokens decide, whatever follows on them; 0 where more of the subject does.
    cdef uint32_t deciding
    # Those tokens are its key.
    cdef bint is_any_rest
    # No subscription matches.
    cdef bint is_nobody
    # The sublist holds it, until its epoch ends.
    cdef bint is_kept
    # Its slot, and its place in the list `kept`.
    cdef uint32_t slot
    cdef uint32_t place

    cdef size_t size(self) noexcept


cdef class Node:
    # One token in the trie.
    cdef bytes token
    # The nodes below it: one Node, or a dictionary of several by their token.
    cdef object literals
    cdef Node star
    cdef Node rest
    # Its subscriptions: one Subscription, or a dictionary of several; of queue groups by name.
    cdef object plain
    cdef dict queues

    cdef Node child(self, bytes token)
    cdef Node literal(self, bytes token)
    cdef Node grow(self, bytes token)
    cdef int cut(self, Node child) except -1
    cdef int add(self, Subscription subscription) except -1
    cdef bint discard(self, Subscription subscription) except -1
    cdef bint is_empty(self) noexcept


cdef struct Slot:
    uint64_t hash
    # Borrowed from `kept`; NULL in an empty slot.
    void* matches


cdef class Sublist:
    cdef Node root
    cdef readonly uint32_t count
    # Inserts and removes so far.
    cdef uint64_t changes
    # Called with each subscription that was inserted or removed; None for no observer.
    cdef public object observer
    cdef Slot* slots
    # The cached answers; `remembered` is how many subscriptions they hold together.
    cdef list kept
    # Grows with every cached answer that is dropped; no two sublists ever have the same.
    cdef uint64_t epoch
    cdef size_t remembered
    # For how many first tokens answers are cached: bit 3 for three of them.
    cdef uint64_t starts_known

    cdef Matches match(self, const uint8_t* subject, size_t size)
    cdef Matches _recall(self, uint64_t value, const uint8_t* key, size_t size)
    cdef Matches _recall_start(self, const uint8_t* subject, size_t size)
    cdef Matches _find(self, bytes subject)
    cdef int _remember(self, uint64_t value, Matches found) except -1
    cdef int _forget(self) except -1
    cdef int _prune(self, list path, Node node) except -1
