/* Sockets with deadlines: what rendezvous, tcp and shm share. All descriptors are non-blocking and
 * close-on-exec; SIGPIPE never happens; every call that can wait takes a deadline (core/clock.h).
 */
#ifndef CORE_NET_H
#define CORE_NET_H

#include <tutti/tutti.h>

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* host NULL: all interfaces. port 0: any; *bound_port (may be NULL) says which. When SYSTEM is
 * returned errno says why (EADDRINUSE: another process has the port). */
tutti_status net_listen(const char *host, int port, int backlog, int *fd, int *bound_port);
/* From now on port 0 does not mean this one in this process: a job meets there, and may again. */
void net_reserve_port(int port);
/* A socket to listen or to connect with; -1 with errno and a message. It has SO_REUSEADDR: it can
 * listen on a port that connections of ours use, or have used within the last minute. */
int net_tcp_socket(int family);
/* The addresses of host (NULL: of this machine), for freeaddrinfo; flags: getaddrinfo's.
 * IN_PROGRESS: the name has no address now, or is unknown. SYSTEM: this process cannot ask. Both
 * set errno and a message. Has no deadline but that of the system's resolver. */
tutti_status net_look_up(const char *host, int port, int flags, struct addrinfo **list);
/* Tries each address once, at this port. IN_PROGRESS, with a message and errno (core/tries.h): no
 * connection now; the caller may try again, or elsewhere. SYSTEM: this process is denied something,
 * or lacks it. host is for the message. */
tutti_status net_connect(const struct addrinfo *list, const char *host, int port,
                         uint64_t deadline_ns, int *fd);
/* Looks up and connects. */
tutti_status net_try_connect(const char *host, int port, uint64_t deadline_ns, int *fd);
/* How a connect has ended, once its socket is ready: *error is 0, or an errno. SYSTEM: getsockopt
 * failed. */
tutti_status net_connect_end(int fd, int *error);
/* Sets this thread's last error to that of a failed connect to `to`, "host:port", and errno to
 * error. */
void net_say_unconnected(const char *to, int error);
/* Sleeps a little, longer with every attempt (counted from 0), never past the deadline. */
void net_pause(int attempt, uint64_t deadline_ns);
/* Whether a connection waits to be accepted: where no descriptor is left, accept4 fails before it
 * looks. */
bool net_has_caller(int listen_fd);
/* Waits for one connection. TIMEOUT at the deadline. */
tutti_status net_accept(int listen_fd, uint64_t deadline_ns, int *fd);

tutti_status net_send_all(int fd, const void *data, size_t bytes, uint64_t deadline_ns);
tutti_status net_recv_all(int fd, void *data, size_t bytes, uint64_t deadline_ns);  /* EOF: PEER */

/* The address of a TCP connection's other end, without the port; "" when it cannot be known any
 * more. */
#define NET_ADDRESS_BYTES 48
void net_peer_address(int fd, char text[NET_ADDRESS_BYTES]);

/* Whether a socket's errno says that there is no other end any more. */
bool net_is_gone(int error);
/* Waits until fd is ready for events (poll's). TIMEOUT at the deadline, after one look. */
tutti_status net_wait(int fd, short events, uint64_t deadline_ns);

/* Unix sockets in the abstract namespace (no file is ever made). Connecting is one attempt:
 * IN_PROGRESS, without a message, when no process listens (ECONNREFUSED) or the listener has no
 * room now (EAGAIN). net_unix_check: OK when the other end belongs to this user, else AUTH; pid
 * may be NULL. */
tutti_status net_unix_listen(const char *name, int backlog, int *fd);
tutti_status net_unix_connect(const char *name, int *fd);
tutti_status net_unix_check(int fd, int *pid);
/* A socket under such a name that net_unix_ring makes readable, and that can ring others itself.
 * What comes means nothing: any process of the machine may ring. net_unix_quiet takes it. */
tutti_status net_unix_doorbell(const char *name, int *fd);
void net_unix_ring(int fd, const char *name);
void net_unix_quiet(int fd);
/* n descriptors (at most 64) with bytes of payload (at least 1). Receiver owns what it gets. */
tutti_status net_send_fds(int fd, const void *data, size_t bytes, const int *fds, int n,
                          uint64_t deadline_ns);
tutti_status net_recv_fds(int fd, void *data, size_t bytes, int *fds, int n,
                          uint64_t deadline_ns);

#endif
