/* hold_gpus: keeps a context on each GPU until its standard input ends. Seen on an H200 in a
 * virtual machine: a job of two processes began in 0.5 s while another process had a context, and
 * else took up to 6 s. A GPU that nobody uses the driver lets go of, unless it is told to persist.
 */
#include "gpu.h"

#include <stdio.h>

int main(void)
{
	if (!gpu_open())
		return 77;
	for (int i = 0; i < gpu_count(); i++)
		gpu_use(i);
	while (getchar() != EOF)
		;
	return 0;
}
