/* One buffer between the terminal and rank 0's stdin. */
#include "input.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct pollfd input_interest(const struct input *input)
{
	struct pollfd interest = {.fd = -1};

	if (input->to_fd >= 0 && input->bytes > 0)
		interest = (struct pollfd){.fd = input->to_fd, .events = POLLOUT};
	else if (input->to_fd >= 0 && tcgetpgrp(STDIN_FILENO) == getpgrp())
		interest = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
	return interest;
}

static void input_end(struct input *input)
{
	close(input->to_fd);
	input->to_fd = -1;
	input->bytes = 0;
}

void input_pump(struct input *input)
{
	ssize_t n;

	if (input->bytes == 0) {
		n = read(STDIN_FILENO, input->data, sizeof input->data);
		if (n > 0)
			input->bytes = (size_t)n;
		else if (n == 0 || errno != EINTR)
			input_end(input);
		return;
	}
	n = write(input->to_fd, input->data, input->bytes);
	if (n > 0) {
		memmove(input->data, input->data + n, input->bytes - (size_t)n);
		input->bytes -= (size_t)n;
	} else if (errno != EINTR && errno != EAGAIN) {
		input_end(input);
	}
}
