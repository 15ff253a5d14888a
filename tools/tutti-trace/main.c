/* tutti-trace: what running ranks have done and what they wait for, and which rank came last. */
#include "merge.h"

#include "tools/output.h"

int main(int argc, char **argv)
{
	struct arguments arguments;
	int code;

	if (!output_open())
		return OUTPUT_FAILED;
	code = arguments_parse(&arguments, argc, argv);
	if (code < 0)
		code = arguments.merges  ? trace_merge(&arguments)
		       : arguments.calls ? trace_calls(&arguments)
					 : trace_dump(&arguments);
	return output_end(code);
}
