/* The terminal's input on its way to rank 0, which cannot read the terminal itself: it leads a
 * process group of its own, and a terminal stops readers outside the foreground group. */
#ifndef LAUNCH_INPUT_H
#define LAUNCH_INPUT_H

#include <poll.h>
#include <stddef.h>

struct input {
	int to_fd;               /* -1: there is none, or it has ended */
	size_t bytes;
	char data[4096];
};

/* The descriptor to wait for; fd -1: none now. */
struct pollfd input_interest(const struct input *input);
void input_pump(struct input *input);      /* after poll said so */

#endif
