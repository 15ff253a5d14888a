/* Where ranks meet, as text: URLs, addresses of this machine, the hosts of a list. */
#ifndef CORE_JOIN_PLACE_H
#define CORE_JOIN_PLACE_H

#include "core/join/rendezvous.h"

#include <stdbool.h>

#define URL_BYTES        512
#define HOST_BYTES       256
#define SECRET_HEX_BYTES 65 /* 32 random bytes and the terminating zero */

/* tcp://host:port, file:///path, tutti://host,host:port/secret into job. A message about a wrong
 * one never shows what may be a secret. */
tutti_status place_parse(struct job *job, const char *url);
/* tutti://...: a fresh secret for the server at port, and every address it may be reached at. */
tutti_status place_url(char *url, size_t url_bytes, const char *secret, int port,
		       const struct env *env);
void place_secret(char hex[SECRET_HEX_BYTES]);

/* The next host of "a,[::1],b", without brackets; *list moves on. False: no more. */
bool place_next_host(const char **list, char host[HOST_BYTES]);
/* Is host an address of this machine (this network namespace)? IN_PROGRESS: the name has no address
 * now. SYSTEM: a system call is denied. */
tutti_status place_is_here(const char *host, bool *is_here);
/* Listens where the others look for rank 0: on that address alone where it is safe to say which of
 * this machine's it is, else on all. */
tutti_status place_listen(const char *host, int port, int *fd, int *bound_port);

/* The file of a file:// rendezvous: rank 0's tutti:// URL, one line. It appears whole or
 * not at all.
 *
 * A stale one of an earlier job breaks nothing: the secret in it is proved only by the process
 * that wrote it, so readers find no server there, and read again until rank 0 has put its own in
 * place. */
tutti_status notice_publish(const char *path, const char *url);
/* IN_PROGRESS when there is none. need_owner: no file of another user's is believed. */
tutti_status notice_read(const char *path, bool need_owner, char url[URL_BYTES]);
/* If it is still this one. */
void notice_remove(const char *path, const char *url);

#endif
