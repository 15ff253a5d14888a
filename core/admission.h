/* Places for connections that have proved nothing yet. Anybody who reaches a port can make one, and each
 * holds a descriptor; all listeners of the process together let them hold no more than a part of what it may
 * open, so that a crowd of strangers at one communicator takes no descriptor that another needs. */
#ifndef CORE_ADMISSION_H
#define CORE_ADMISSION_H

#include <stdbool.h>

#define ADMISSION_LEAST 8   /* of one listener, whatever the others have         */
#define ADMISSION_SHARE 8   /* all of them: one in so many of the process's descriptors */
#define ADMISSION_MOST  512 /* ... and no more than this                         */

/* One more for a listener that has mine of them and wants most at the most (ADMISSION_LEAST or more).
 * False: it lets one of its own go first, the oldest, and asks again. */
bool admission_enter(int mine, int most);
/* One of them has gone, or has proved itself. */
void admission_leave(void);

#endif
