package subproc

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// Orders to the shim: one byte each. orderRun is followed by the length of a
// request in four bytes and the request as JSON, and carries the program's
// streams as descriptors. orderDeadline is followed by the time since boot, in
// nanoseconds in eight bytes, at which the program is to be killed, or frozen,
// unless a later one has come; zero means never. A frozen program goes on when a later
// one comes. orderSignal is followed by the number of a signal in one byte. The end of
// the line means orderKill.
const (
	orderRun       = 'R'
	orderTerminate = 'T'
	orderKill      = 'K'
	orderDeadline  = 'D'
	orderSignal    = 'S'
)

const (
	// streamCount is how many descriptors a program starts with: standard input,
	// output and error, and the control channel.
	streamCount = 4
	// requestBytesMax is far above what the kernel lets a program start with.
	requestBytesMax = 64 << 20
)

// request is a program to run. Texts are bytes, since JSON would change what
// is not UTF-8.
type request struct {
	Args [][]byte `json:"args"`
	Env  [][]byte `json:"env"`
	Dir  []byte   `json:"dir,omitempty"`

	Attributes *Attributes `json:"attributes,omitempty"`
	DeadlineNs int64       `json:"deadline_ns,omitempty"` // also of orderDeadline
	Freezes    bool        `json:"freezes,omitempty"`     // it is stopped at the deadline, not killed

	Signal syscall.Signal `json:"-"` // of orderSignal

	streams []*os.File // travel beside the JSON
}

// report is what the shim says of a program, one JSON object a line: its pid
// first, and in the end how it ended or why it could not be started.
type report struct {
	PID         int     `json:"pid,omitempty"`
	Failure     string  `json:"failure,omitempty"`
	Errno       uintptr `json:"errno,omitempty"` // of the failure
	Ended       bool    `json:"ended,omitempty"`
	ExitCode    int     `json:"exit_code,omitempty"`
	Signal      string  `json:"signal,omitempty"`
	Expired     bool    `json:"expired,omitempty"` // the deadline has passed
	CPUNs       int64   `json:"cpu_ns,omitempty"`
	MaxRSSBytes int64   `json:"max_rss,omitempty"`

	Left []leftProcess `json:"left,omitempty"` // that could not be ended
}

func (r report) ended() bool { return r.Ended || r.Failure != "" }

func failureReport(err error) report {
	var errno syscall.Errno
	_ = errors.As(err, &errno) // 0 when it is none of the system's
	return report{Failure: err.Error(), Errno: uintptr(errno)}
}

func bytesOf(texts []string) [][]byte {
	all := make([][]byte, len(texts))
	for i, text := range texts {
		all[i] = []byte(text)
	}
	return all
}

func texts(all [][]byte) []string {
	texts := make([]string, len(all))
	for i, text := range all {
		texts[i] = string(text)
	}
	return texts
}

// send writes a request with its streams. The descriptors go with the first
// byte, and the receiver has them with it.
func send(line *os.File, r request) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(body) > requestBytesMax {
		return fmt.Errorf("arguments and environment have %d bytes, the limit is %d", len(body), requestBytesMax)
	}
	frame := binary.BigEndian.AppendUint32([]byte{orderRun}, uint32(len(body))) // #nosec G115 -- checked above
	frame = append(frame, body...)
	descriptors := make([]int, len(r.streams))
	for i, stream := range r.streams {
		descriptors[i] = int(stream.Fd()) // #nosec G115 -- descriptors are small
	}
	if err := line.SetWriteDeadline(time.Now().Add(shimPatience)); err != nil {
		return err
	}
	raw, err := line.SyscallConn()
	if err != nil {
		return err
	}
	sent, sendErr := 0, error(nil)
	err = raw.Write(func(socket uintptr) bool {
		sent, sendErr = syscall.SendmsgN(int(socket), frame, syscall.UnixRights(descriptors...), nil, sendFlags) // #nosec G115 -- likewise
		return !errors.Is(sendErr, syscall.EAGAIN) && !errors.Is(sendErr, syscall.EINTR)
	})
	if err = errors.Join(err, sendErr); err != nil {
		return err
	}
	_, err = line.Write(frame[sent:])
	return err
}

// receive reads one order, and the request that follows it if it is orderRun.
func receive(line int) (order byte, r request, err error) {
	first := make([]byte, 1)
	beside := make([]byte, syscall.CmsgSpace(streamCount*4))
	count, besideCount, err := receiveMessage(line, first, beside)
	if err != nil || count == 0 {
		return 0, r, errors.Join(err, io.EOF)
	}
	if first[0] == orderDeadline {
		deadline := make([]byte, 8)
		err := readFull(line, deadline)
		r.DeadlineNs = int64(binary.BigEndian.Uint64(deadline)) // #nosec G115 -- it was one
		return orderDeadline, r, err
	}
	if first[0] == orderSignal {
		number := make([]byte, 1)
		err := readFull(line, number)
		r.Signal = syscall.Signal(number[0])
		return orderSignal, r, err
	}
	if first[0] != orderRun {
		return first[0], r, nil
	}
	if r.streams, err = descriptorsIn(beside[:besideCount]); err != nil {
		return 0, r, err
	}
	length := make([]byte, 4)
	if err := readFull(line, length); err != nil {
		return 0, r, err
	}
	body := make([]byte, min(binary.BigEndian.Uint32(length), requestBytesMax))
	if err := readFull(line, body); err != nil {
		return 0, r, err
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return 0, r, err
	}
	if len(r.Args) == 0 || len(r.streams) != streamCount {
		return 0, r, errors.New("half a request")
	}
	return orderRun, r, nil
}

func receiveMessage(line int, first, beside []byte) (count, besideCount int, err error) {
	for {
		count, besideCount, _, _, err = syscall.Recvmsg(line, first, beside, 0)
		if !errors.Is(err, syscall.EINTR) {
			return count, besideCount, err
		}
	}
}

func descriptorsIn(beside []byte) ([]*os.File, error) {
	messages, err := syscall.ParseSocketControlMessage(beside)
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(err, errors.New("a request without its streams"))
	}
	descriptors, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	streams := make([]*os.File, len(descriptors))
	for i, descriptor := range descriptors {
		// No program starts before this request is read: there is no race.
		syscall.CloseOnExec(descriptor)
		streams[i] = os.NewFile(uintptr(descriptor), "stream") // #nosec G115 -- descriptors are not negative
	}
	return streams, nil
}

func readFull(line int, target []byte) error {
	for len(target) > 0 {
		count, err := syscall.Read(line, target)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return err
		case count == 0:
			return io.ErrUnexpectedEOF
		}
		target = target[count:]
	}
	return nil
}
