/* Names, in words, the limit that a process has reached when the system refuses it something. */
#ifndef CORE_RESOURCE_LIMITS_H
#define CORE_RESOURCE_LIMITS_H

#define RESOURCE_LIMIT_BYTES 120

/* Behind the text of an errno: which limit it speaks of, how much that is in this process, and what
 * to do, as "; this process may have 20 open: raise `ulimit -n`". "" for an errno that is about no
 * limit. Returns text. */
const char *resource_limit_text(int error, char text[RESOURCE_LIMIT_BYTES]);

#endif
