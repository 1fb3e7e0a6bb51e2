package programs

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs/internal/failure"
)

const (
	// httpBodyBytesMax bounds what is read of an answer. It is the largest size of a result.
	httpBodyBytesMax = 1 << 20
	// retryAfterMax bounds what an answer can ask for.
	retryAfterMax = 30 * 24 * time.Hour
)

// answerVerdict is what the handler returns for an answer.
func answerVerdict(run worker.ExternalRun, response *http.Response, answer []byte) error {
	isJSON := isJSONType(response.Header.Get("Content-Type"))
	if code := response.StatusCode; code >= 200 && code < 300 {
		return keepAnswer(run, isJSON, answer)
	}
	var said struct {
		Error   string `json:"error"`
		Discard bool   `json:"discard"`
	}
	status := fmt.Sprintf("HTTP %d", response.StatusCode)
	text := failure.OfAnswer(status, answer)
	if isJSON && json.Unmarshal(answer, &said) == nil && said.Error != "" {
		text = failure.OfReason(status, said.Error)
	}
	err := errors.New(text)
	after, hasAfter := retryAfter(response.Header.Get("Retry-After"), time.Now())
	switch {
	case said.Discard && response.StatusCode >= 400 && response.StatusCode < 500:
		return worker.Discard(err)
	case hasAfter && (response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable):
		return worker.Snooze(after) // it says that it has not begun
	case response.StatusCode == http.StatusTooManyRequests:
		return worker.Snooze(tempFailDelay)
	case hasAfter:
		return worker.Retry(after, err)
	}
	return err
}

// keepAnswer keeps what a server says of a job that has completed: JSON as its
// result, anything else as output.
func keepAnswer(run worker.ExternalRun, isJSON bool, answer []byte) error {
	switch {
	case !isJSON:
		run.KeepOutput(answer)
		return nil
	case len(answer) == 0:
		return nil
	case len(answer) > httpBodyBytesMax:
		return fmt.Errorf("the answer is longer than %d bytes", httpBodyBytesMax)
	case !json.Valid(answer):
		return errors.New("the answer says that it is JSON, and is not")
	}
	return run.SetResult(json.RawMessage(answer))
}

func isJSONType(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == "application/json"
}

// retryAfter reads the header: seconds, or a date.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, int64(retryAfterMax/time.Second))) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), retryAfterMax), true
	}
	return 0, false
}
