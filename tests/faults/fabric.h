/* Whether a transport that needs a library or a device works on this machine. */
#ifndef TESTS_FAULTS_FABRIC_H
#define TESTS_FAULTS_FABRIC_H

/* NULL: it does; else the transport's own reason. It is asked once, in a process of its own: what a
 * fabric's libraries do to a process is not done to this one, which forks the ranks. */
const char *fabric_lacks(const char *transport);

#endif
