/* Looks at running processes from outside: finds the pages of their traces and reads them. They need do nothing
 * for that, and notice nothing. */
#ifndef TOOLS_ATTACH_H
#define TOOLS_ATTACH_H

#include "collectives/trace/trace_log.h"

/* The exit codes of a tool. */
enum attach_code {
	ATTACH_OK = 0,
	ATTACH_FAILED = 1,  /* anything else: a damaged trace, no memory            */
	ATTACH_USAGE = 2,   /* for the tools                                        */
	ATTACH_NOBODY = 3,  /* there is no such process                             */
	ATTACH_NO_TUTTI = 4, /* it has no communicator                               */
	ATTACH_REFUSED = 5, /* it may not be looked at                              */
	ATTACH_VERSION = 6, /* its Tutti is another one                             */
};

/* Reads what process pid has. Else *why has a message. */
enum attach_code attach_read(int pid, struct trace_process *process, char *why, size_t why_bytes);

#endif
